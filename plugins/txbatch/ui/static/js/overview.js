// The bar of all txids: a mark for each that is not simply committed, and the window.

import { go, href } from "./address.js";
import { h, svg } from "./dom.js";
import { LOOKS } from "./looks.js";
import { digits, many } from "./words.js";

export const WINDOW = 60;
const WIDE = 1000;
const HIGH = 26;
const MARK_MIN = 2.5;
const STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };

// Return the bar. `first` and `last` are the txids of the window.
export function overviewBar(topology, all, first, last) {
  const there = Math.max(all.last, last);
  const at = (txid) => ((txid - 1) / there) * WIDE;
  const wide = (txids) => Math.max((txids / there) * WIDE, MARK_MIN);
  const marks = all.exceptions.map(({ txid, look }) =>
    svg("rect", { class: `look-${look}`, x: Math.min(at(txid), WIDE - MARK_MIN), y: 4, width: wide(1), height: HIGH - 8 }));
  const to = (txid) => show(topology, txid, there);
  // Browsers let the address change a few times a second alone: a drag moves the drawn window.
  const drag = (event, node) => {
    if (!node.hasPointerCapture(event.pointerId)) return;
    node.querySelector(".window").setAttribute("x", at(Math.max(within(pointed(event, node, there), there) - WINDOW + 1, 1)));
  };
  const drop = (event, node) => node.hasPointerCapture(event.pointerId) && to(pointed(event, node, there));
  return h("div", {
    ...{ class: "overview", role: "slider", tabindex: "0", key: "overview", title: "Drag or click to go there" },
    ...{ label: `All ${many(there, "txid")}`, "aria-valuemin": 1, "aria-valuemax": there, "aria-valuenow": last },
    "aria-valuetext": `txids ${digits(first)} to ${digits(last)} of ${digits(there)}; ${told(all)}`,
    on: {
      pointerdown: (event, node) => (node.setPointerCapture(event.pointerId), drag(event, node)),
      pointermove: drag,
      pointerup: drop,
      keydown: (event) => key(event, last, there, to),
    },
  }, svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" },
    svg("rect", { class: "look-committed", x: 0, y: 4, width: WIDE, height: HIGH - 8 }), marks,
    svg("rect", { class: "window", x: at(first), y: 1, width: Math.max(at(last + 1) - at(first), 6), height: HIGH - 2 })));
}

function told(all) {
  const counts = new Map();
  for (const { look } of all.exceptions) counts.set(look, (counts.get(look) ?? 0) + 1);
  const words = [...counts].map(([look, count]) => `${digits(count)} ${LOOKS[look]?.[1] ?? look}`);
  if (all.more) words.push("and more");
  return words.join(", ") || "all simply committed";
}

function pointed(event, node, last) {
  const { left, width } = node.getBoundingClientRect();
  const share = Math.min(Math.max((event.clientX - left) / width, 0), 1);
  return Math.round(share * last) + WINDOW / 2;
}

function key(event, txid, last, to) {
  const steps = STEPS[event.key];
  const wanted = event.key === "Home" ? WINDOW : event.key === "End" ? last : steps ? txid + steps * (WINDOW / 2) : null;
  if (wanted === null) return true;
  event.preventDefault();
  return to(wanted);
}

function within(txid, last) {
  return Math.max(Math.min(Math.max(txid, WINDOW), last), 1);
}

function show(topology, txid, last) {
  const end = within(txid, last);
  go(href(topology, "transactions", { before: end === last ? null : end + 1 }), { replace: true });
}
