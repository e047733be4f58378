// The calendar: a row for each month, day or year, a cell for each interval; a hole is hatched.

import { go, href } from "./address.js";
import { h } from "./dom.js";
import { LOOKS, look, shape } from "./looks.js";
import { around, cell, stop } from "./roving.js";
import { at, covers, hours, many, zoneOf } from "./words.js";

const GROUP = "calendar";
const HOUR = 3600000;
const CELLS_MAX = 1200;

/** Return the calendar of intervals and gaps; `open` is called with the gap of a hole; null opens none. */
export function calendar({ topology }, { intervals, gaps, zone }, open) {
  const length = intervals.length ? hours(intervals[0].start, intervals[0].end) : 24;
  const all = [...intervals.map((each) => ofInterval(topology, each, zone)), ...gaps.flatMap((gap) => ofGap(gap, length, zone, open))];
  all.sort((one, other) => one.start - other.start);
  const here = stop(GROUP, new Set(all.map((each) => each.key)), all.find((each) => each.look === "hole")?.key ?? all.at(-1)?.key);
  const rows = new Map();
  for (const each of all) {
    const [row, column] = place(each.start, length, zoneOf(zone));
    if (!rows.has(row)) rows.set(row, new Map());
    rows.get(row).set(column, [...(rows.get(row).get(column) ?? []), each]);
  }
  const columns = columnsOf(rows, length);
  const head = h("tr", {}, h("td", {}), columns.map((each) => h("th", { scope: "col" }, each)));
  const body = [...rows].map(([name, cells]) => h("tr", { "data-key": name }, h("th", { scope: "row" }, name),
    columns.map((column) => h("td", { "data-key": column }, (cells.get(column) ?? []).map((each) => button(each, here))))));
  return h("div", { class: "scrolls calendar", role: "group", "aria-label": "Intervals; arrows move, Enter opens", on: around(GROUP) },
    h("table", {}, h("thead", {}, head), h("tbody", {}, body)));
}

function button({ key, look: name, words, tried, click }, here) {
  return h("button", { type: "button", class: `cell look-${name}${tried ? " tried" : ""}`, title: words, "aria-label": words, "aria-disabled": click ? null : "true", ...cell(key, here), on: click ? { click } : {} }, shape(name));
}

function ofInterval(topology, each, zone) {
  const name = each.counts != null && each.counts !== each.txid ? "replaced" : look(each);
  const state = name === "replaced" ? `counted again by ${each.counts}` : (LOOKS[name]?.[1] ?? name);
  const words = [covers(each.start, each.end, zone), `txid ${each.txid}`, state, each.records != null && many(each.records, "record"), many(each.attempts, "attempt")];
  const click = () => go(href(topology, "batch", { txid: each.counts ?? each.txid }));
  return { key: `${each.start}:${each.txid}`, start: Date.parse(each.start), look: name, words: words.filter(Boolean).join(", "), tried: each.attempts > 1, click };
}

function ofGap(gap, length, zone, open) {
  const cells = [];
  const end = Date.parse(gap.end);
  for (let start = Date.parse(gap.start); start < end && cells.length < CELLS_MAX; ) {
    const next = Math.min(after(start, length, zoneOf(zone)), end);
    const words = `${covers(new Date(start).toISOString(), new Date(next).toISOString(), zone)}: not counted${open ? ", count it…" : ""}`;
    cells.push({ key: `hole:${start}`, start, look: "hole", words, tried: false, click: open && (() => open(gap)) });
    start = next;
  }
  return gap.txid == null ? cells : [];
}

// Days begin at midnight, also where a clock was changed between two of them.
function after(start, length, zone) {
  if (length < 22 || length > 26) return start + Math.max(length, 1 / 60) * HOUR;
  const noon = start + 36 * HOUR;
  const [hour, minute, second] = at(noon, zone).time.split(":").map(Number);
  return noon - ((hour * 60 + minute) * 60 + second) * 1000;
}

function place(start, length, zone) {
  const { day, minute } = at(start, zone);
  if (length > 26) return [day.slice(0, 4), day.slice(5)];
  if (length > 20) return [day.slice(0, 7), String(Number(day.slice(8)))];
  if (length >= 0.5) return [day, minute.slice(0, 2)];
  return [`${day} ${minute.slice(0, 2)}h`, minute.slice(3)];
}

function columnsOf(rows, length) {
  const there = [...new Set([...rows.values()].flatMap((each) => [...each.keys()]))];
  if (length > 20 && length <= 26) return Array.from({ length: 31 }, (_, at) => String(at + 1));
  return there.sort();
}
