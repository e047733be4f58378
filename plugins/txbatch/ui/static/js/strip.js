// The strip: a cell for each batch of the window, oldest first.

import { go, href } from "./address.js";
import { h, mark } from "./dom.js";
import { look, shape, state } from "./looks.js";
import { around, cell, stop } from "./roving.js";
import { covers, many } from "./words.js";

const GROUP = "strip";

// Return the strip of batches, which come newest first.
export function strip(topology, batches, zone) {
  const oldest = [...batches].reverse();
  const keys = new Set(oldest.map((each) => String(each.txid)));
  const here = stop(GROUP, keys, String(batches[0].txid));
  const cells = oldest.map((batch) => {
    const words = sentence(batch, zone);
    const open = () => go(href(topology, "batch", { txid: batch.txid }));
    return cell(String(batch.txid), here, look(batch), shape(look(batch)), words, open, batch.attempts > 1);
  });
  return h("div", { class: "strip", role: "group", label: "Batches, oldest first", on: around(GROUP) }, cells);
}

function sentence(batch, zone) {
  const parts = [`txid ${batch.txid}`, batch.start && covers(batch.start, batch.end, zone), state(batch)];
  parts.push(batch.records != null && many(batch.records, "record"), many(batch.attempts, "attempt"));
  return parts.filter(Boolean).join(", ");
}

// Return the words for shapes, each as [look, shape, words]; `dot`: some took more than one attempt.
export function legend(shapes, dot) {
  const entry = ([name, sign, words, more = ""]) => h("li", {}, mark(sign, `cell small look-${name}${more}`), ` ${words}`);
  const dots = dot ? [["committed", "", "more than one attempt", " tried"]] : [];
  return h("ul", { class: "legend", label: "What the shapes mean" }, [...shapes, ...dots].map(entry));
}
