// The calendar: a row for each month, day or year, a cell for each interval; a hole is hatched.

import { go, href } from "./address.js";
import { h } from "./dom.js";
import { legendOf, LOOKS, look, shape } from "./looks.js";
import { around, cell, stop } from "./roving.js";
import { legend } from "./strip.js";
import { at, clip, covers, lengthOf, many } from "./words.js";

const GROUP = "calendar";
const HOUR = 3600000;
const CELLS_MAX = 1200;

// Return the calendar of intervals and gaps; `open`, if any, is called with the gap of a hole.
export function calendar({ topology }, { intervals, gaps, zone, span }, open) {
  const length = lengthOf(intervals) ?? 24;
  const how = { length, zone, open, from: Date.parse(span.start), to: Date.parse(span.end) };
  const missing = gaps.reduce((found, gap) => found.concat(ofGap(gap, how, CELLS_MAX - found.length)), []);
  const all = [...intervals.map((each) => ofInterval(topology, each, zone)), ...missing];
  all.sort((one, other) => one.start - other.start);
  const here = stop(GROUP, new Set(all.map((each) => each.key)), all.find((each) => each.look === "hole")?.key ?? all.at(-1)?.key);
  const rows = new Map();
  for (const each of all) {
    const [row, column] = place(each.start, length, zone);
    if (!rows.has(row)) rows.set(row, new Map());
    rows.get(row).set(column, [...(rows.get(row).get(column) ?? []), each]);
  }
  const columns = columnsOf(rows, length);
  const head = h("tr", {}, h("td", {}), columns.map((each) => h("th", { scope: "col" }, each)));
  const body = [...rows].map(([name, cells]) => h("tr", { key: name }, h("th", { scope: "row" }, name),
    columns.map((column) => h("td", { key: column }, (cells.get(column) ?? []).map((each) => cell(each.key, here, each.look, shape(each.look), each.words, each.click, each.tried))))));
  return [
    h("div", { class: "scrolls calendar", role: "group", label: "Intervals; arrows move, Enter opens", on: around(GROUP) },
      h("table", {}, h("thead", {}, head), h("tbody", {}, body))),
    legend(legendOf(all.map((each) => each.look)), all.some((each) => each.tried)),
  ];
}

function ofInterval(topology, each, zone) {
  const name = each.counts != null && each.counts !== each.txid ? "replaced" : look(each);
  const state = name === "replaced" ? `counted again by ${each.counts}` : (LOOKS[name]?.[1] ?? name);
  const why = [each.requested_by, each.reason && clip(each.reason)].filter(Boolean).join(": ");
  const words = [covers(each.start, each.end, zone), `txid ${each.txid}`, state, why, each.records != null && many(each.records, "record"), many(each.attempts, "attempt")];
  const click = () => go(href(topology, "batch", { txid: each.counts ?? each.txid }));
  return { key: `${each.start}:${each.txid}`, start: Date.parse(each.start), look: name, words: words.filter(Boolean).join(", "), tried: each.attempts > 1, click };
}

// The cells of the gap that lie in the window; `most` bounds them.
function ofGap(gap, { length, zone, open, from, to }, most) {
  const cells = [];
  if (gap.txid != null) return cells;
  const [begin, end] = [Date.parse(gap.start), Date.parse(gap.end)];
  const wall = seconds(begin, zone);
  // What lies long before the window is leapt over but for two steps: days find their time of day.
  const step = isDay(length) ? 24 * HOUR : stepOf(length);
  const leapt = Math.max(0, Math.floor((from - begin) / step) - 2) * step;
  for (let start = begin + leapt; start < Math.min(end, to) && cells.length < most; ) {
    const next = Math.min(after(start, length, zone, wall), end);
    const words = `${covers(new Date(start).toISOString(), new Date(next).toISOString(), zone)}: not counted${open ? ", count it…" : ""}`;
    if (next > from) cells.push({ key: `hole:${start}`, start, look: "hole", words, tried: false, click: open && (() => open(gap)) });
    start = next;
  }
  return cells;
}

// Return where the next interval begins. Days begin at one time of day, also where a clock was changed.
export function after(start, length, zone, wall = seconds(start, zone)) {
  if (!isDay(length)) return start + stepOf(length);
  const day = start + 24 * HOUR;
  const off = wall - seconds(day, zone);
  const next = day + (off - Math.round(off / 86400) * 86400) * 1000;
  // A time of day may be leapt over by the clock.
  return seconds(next, zone) === wall ? next : Math.max(next, day);
}

function isDay(length) {
  return length >= 22 && length <= 26;
}

function stepOf(length) {
  return Math.max(length, 1 / 60) * HOUR;
}

function seconds(moment, zone) {
  const [hour, minute, second] = at(moment, zone).time.split(":").map(Number);
  return (hour * 60 + minute) * 60 + second;
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
