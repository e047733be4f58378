// One stop of the Tab key for many cells: arrows, Home and End move between them.

import { h } from "./dom.js";

const current = new Map();

// Return the key of the cell that takes the focus: the last that had it, else the fallback.
export function stop(group, keys, fallback) {
  const last = current.get(group);
  return last != null && keys.has(last) ? last : fallback;
}

// Return a cell with its look, shape, sentence and click; `here` is the key of the cell that takes the focus.
export function cell(key, here, name, sign, words, click, tried = false) {
  return h("button", {
    ...{ type: "button", class: `cell look-${name}${tried ? " tried" : ""}`, title: words, label: words, "aria-disabled": click ? null : "true" },
    ...{ "data-cell": key, key, tabindex: key === here ? "0" : "-1", on: { click } },
  }, sign);
}

// Return the handlers of the element around the cells of a group.
export function around(group) {
  return { keydown: moved, focusin: (event, node) => took(group, event, node) };
}

function took(group, event, node) {
  const cell = event.target.closest("[data-cell]");
  if (!cell) return true;
  for (const other of node.querySelectorAll('[data-cell][tabindex="0"]')) other.setAttribute("tabindex", "-1");
  cell.setAttribute("tabindex", "0");
  current.set(group, cell.dataset.cell);
  return true;
}

function moved(event, node) {
  const from = event.target.closest("[data-cell]");
  const to = from && target(event.key, event.ctrlKey, from, node);
  if (!to) return true;
  event.preventDefault();
  to.focus();
  return false;
}

function target(key, far, from, node) {
  const all = [...node.querySelectorAll("[data-cell]")];
  const at = all.indexOf(from);
  if (key === "ArrowRight") return all[at + 1];
  if (key === "ArrowLeft") return all[at - 1];
  const rows = rowsOf(all);
  const row = rows.findIndex((each) => each.includes(from));
  if (key === "Home") return far ? all[0] : rows[row][0];
  if (key === "End") return far ? all.at(-1) : rows[row].at(-1);
  if (key === "ArrowUp") return nearest(rows[row - 1], from);
  if (key === "ArrowDown") return nearest(rows[row + 1], from);
  return null;
}

function rowsOf(cells) {
  const rows = new Map();
  for (const each of cells) {
    const top = Math.round(each.getBoundingClientRect().top);
    if (!rows.has(top)) rows.set(top, []);
    rows.get(top).push(each);
  }
  return [...rows.values()];
}

function nearest(row, from) {
  const left = from.getBoundingClientRect().left;
  const off = (each) => Math.abs(each.getBoundingClientRect().left - left);
  return row?.reduce((best, each) => (off(each) < off(best) ? each : best));
}
