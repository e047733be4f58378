// The dialog of an act. Closed, it gives the focus back to its button.

import { h, home, morph } from "./dom.js";

let opened = 0;

// Open a dialog. `content` gets the dialog's hands, and returns what is told before, fields and buttons.
export function open(title, content) {
  const opener = document.activeElement;
  const titleId = `dialog-${(opened += 1)}`;
  let busy = false;
  const box = (...words) => h("div", { class: "answer", role: "status", "aria-live": "polite" }, ...words);
  const answer = box();
  const hands = {
    say: (...words) => {
      const within = answer.contains(document.activeElement);
      morph(answer, box(...words));
      if (within && !answer.contains(document.activeElement)) close.focus();
    },
    // A button that is greyed keeps the focus; a disabled one would lose it.
    busy: (on) => {
      busy = on;
      body.querySelectorAll("button.act").forEach((each) => each.setAttribute("aria-disabled", on));
    },
    free: () => !busy,
    // What was told before and the buttons are of a state that is no more.
    done: () => {
      before.remove();
      body.querySelectorAll("button.act").forEach((each) => each.remove());
      if (!body.contains(document.activeElement)) close.focus();
    },
    open: () => dialog.open,
    values: () => new FormData(body),
    valid: (name) => (name ? (body.elements[name]?.reportValidity() ?? true) : body.reportValidity()),
  };
  const submit = (event) => event.preventDefault();
  const body = h("form", { novalidate: false, on: { submit } });
  const close = h("button", { type: "button", on: { click: () => dialog.close() } }, "Close");
  const dialog = h("dialog", { "aria-labelledby": titleId }, h("h2", { id: titleId }, title), body);
  const { told, fields, buttons } = content(hands);
  const before = h("div", {}, told, fields);
  body.append(...h("div", {}, before, answer, h("div", { class: "buttons" }, buttons, close)).childNodes);
  // A link inside leads to another page: the dialog makes room.
  const leave = () => dialog.close();
  window.addEventListener("went", leave);
  dialog.addEventListener("close", () => {
    window.removeEventListener("went", leave);
    dialog.remove();
    if (opener?.isConnected) opener.focus();
    else home();
  });
  document.body.append(dialog);
  dialog.showModal();
}
