// The dialog of an act: what is told before, fields, buttons, and the answer. Closed, it gives the focus back to its button.

import { h } from "./dom.js";

/** Open a dialog. `content` gets the dialog's hands, `{say, busy, open, values}`, and returns its elements. */
export function open(title, content) {
  const opener = document.activeElement;
  const answer = h("div", { class: "answer", role: "status", "aria-live": "polite" });
  const hands = {
    say: (...words) => answer.replaceChildren(...h("div", {}, ...words).childNodes),
    busy: (on) => body.querySelectorAll("button.act").forEach((each) => (each.disabled = on)),
    open: () => dialog.open,
    values: () => new FormData(body),
    valid: (name) => (name ? (body.elements[name]?.reportValidity() ?? true) : body.reportValidity()),
  };
  const submit = (event) => event.preventDefault();
  const body = h("form", { novalidate: false, on: { submit } });
  const close = h("button", { type: "button", on: { click: () => dialog.close() } }, "Close");
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title), body);
  const { told, fields, buttons } = content(hands);
  body.append(...h("div", {}, told, fields, answer, h("div", { class: "buttons" }, buttons, close)).childNodes);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (opener?.isConnected) opener.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** Return a paragraph of what is told before an act. */
export function told(...words) {
  return h("p", {}, ...words);
}
