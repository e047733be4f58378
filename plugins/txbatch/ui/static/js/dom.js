// Trees of elements, and the replacement of an old tree by a fresh one: focus, scroll and typed text stay.

const SVG = "http://www.w3.org/2000/svg";
const HEARD = ["click", "keydown", "input", "change", "submit", "pointerdown", "pointermove", "pointerup", "focusin"];
// Characters that change how the text around them is shown.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const SHOWN_AS_TEXT = new Set(["aria-label", "title", "aria-valuetext", "placeholder"]);
const SHORT = { key: "data-key", label: "aria-label" };
const handlers = new WeakMap();

// Return a text with its control characters written out, such as \u202e.
export function plain(text) {
  return String(text).replace(UNSEEN, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// Return an element with attributes, handlers (`on`) and children; `key` and `label` are short names.
export function h(tag, props, ...children) {
  return made(document.createElement(tag), props, children);
}

export function p(kind, ...words) {
  return h("p", { class: kind || null }, ...words);
}

// Return a text that turns no other text around.
export function bdi(...words) {
  return h("bdi", {}, ...words);
}

// Return a mark for the eye alone: words beside it tell the same.
export function mark(text, kind = null) {
  return h("span", { class: kind, "aria-hidden": "true" }, text);
}

// Return the attributes of what scrolls inside itself, by keys as well.
export function region(label) {
  return { tabindex: "0", role: "region", label };
}

export function svg(tag, props, ...children) {
  return made(document.createElementNS(SVG, tag), props, children);
}

function made(node, props, children) {
  for (const [given, value] of Object.entries(props ?? {})) {
    const name = SHORT[given] ?? given;
    if (name === "on") handlers.set(node, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, SHOWN_AS_TEXT.has(name) ? plain(value) : value);
  }
  const there = children.flat(Infinity).filter((each) => each != null && each !== false && each !== "");
  node.append(...there.map((each) => (each instanceof Node ? each : plain(each))));
  return node;
}

// Call handlers below a root, the innermost first, until one does not answer `true`.
export function listen(root) {
  for (const kind of HEARD) root.addEventListener(kind, (event) => heard(event, root));
}

function heard(event, root) {
  for (let node = event.target; node; node = node === root ? null : node.parentNode) {
    const handler = handlers.get(node)?.[event.type];
    if (handler && handler(event, node) !== true) return;
  }
}

// Make an old element like a fresh one. Elements of one `key` stay, and so does the focus.
export function morph(old, fresh) {
  const focused = document.activeElement;
  const within = old !== focused && old.contains(focused);
  become(old, fresh);
  if (!within || focused === document.activeElement) return;
  if (focused.isConnected) focused.focus({ preventScroll: true });
  else home();
}

// Focus the tab of the page that is shown: what had the focus is gone.
export function home() {
  document.querySelector("nav [aria-current]")?.focus({ preventScroll: true });
}

function become(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  attributes(old, fresh);
  if (handlers.has(fresh)) handlers.set(old, handlers.get(fresh));
  else handlers.delete(old);
  children(old, fresh);
}

function attributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    old.setAttribute(name, value);
    // What somebody types or drags just now is not taken from their hands.
    if (name === "value" && "value" in old && old !== document.activeElement) old.value = value;
    if (name === "selected") old.selected = true;
  }
}

function children(old, fresh) {
  const wanted = new Set([...fresh.children].map(keyOf));
  const keyed = new Map();
  for (const child of [...old.children]) {
    const key = keyOf(child);
    if (key && wanted.has(key)) keyed.set(key, [...(keyed.get(key) ?? []), child]);
    else if (key) child.remove();
  }
  let at = old.firstChild;
  for (const want of [...fresh.childNodes]) {
    const key = keyOf(want);
    // Several elements of one key are taken once each.
    const found = key ? keyed.get(key)?.shift() : at;
    if (!alike(found, want)) old.insertBefore(want, at);
    else {
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      become(found, want);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(one, other) {
  return Boolean(one) && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

function keyOf(node) {
  return node.dataset?.key;
}
