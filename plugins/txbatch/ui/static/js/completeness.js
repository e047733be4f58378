// The page Completeness: by time, what is counted and missing; by partitions, how far each was read.

import { countHole } from "./acts.js";
import { href } from "./address.js";
import { route } from "./api.js";
import { calendar } from "./calendar.js";
import { h, p } from "./dom.js";
import { grid } from "./grid.js";
import { may } from "./header.js";
import { because, button, choice, inside, on, shown, step, txidLink, well } from "./pieces.js";
import { covers, digits, lengthOf, many, unit, upTo } from "./words.js";

const DAY = 86400000;
// Intervals of a day or more are shown for a year.
const WIDE_DAYS = 366;
const NARROW_DAYS = 31;
const LONG_HOURS = 20;
const CORRECTED_MAX = 10;

export function completeness(view) {
  const { one, address } = view;
  const byTime = one.topology.by_interval && address.by !== "partitions";
  const both = one.topology.by_interval && one.streams.some((each) => each.by_partition);
  return [both && ways(view, byTime), byTime ? times(view) : grid(view)];
}

function ways({ topology }, byTime) {
  const to = (by, words) => choice(href(topology, "completeness", { by }), words, (by === null) === byTime);
  return p("", to(null, "by time"), " ", to("partitions", "by partitions"));
}

function times(view) {
  const { store, topology, address } = view;
  const path = route(topology, "intervals");
  const narrow = store.need("intervals", path, { from: address.from, to: address.to });
  const span = narrow.data?.span;
  if (!span?.last || address.from || !long(narrow.data)) return shown(narrow, (data) => found(view, data));
  const first = Math.max(Date.parse(span.first), Date.parse(span.last) - WIDE_DAYS * DAY);
  const wide = store.need("intervals of a year", path, { from: iso(first), to: span.last });
  return shown(wide, (data) => found(view, data));
}

// Without an interval that begins in the month they may be quarters.
function long({ intervals }) {
  return !(lengthOf(intervals) <= LONG_HOURS);
}

function iso(milliseconds) {
  return new Date(milliseconds).toISOString().replace(/\.\d+Z$/, "Z");
}

function found(view, data) {
  const { intervals, gaps, span } = data;
  if (!span.first) return p("empty", "No interval is counted yet.");
  const open = view.one.may_trigger ? (gap) => countHole(view, gap, data.zone) : null;
  return [
    windows(view, data),
    p("quiet", summary(data)),
    calendar(view, data, open),
    corrected(view, data),
    gaps.length ? holes(view, gaps, data.zone, open) : [well(noHole(data)), elsewhere(view, data)],
  ];
}

function corrected({ topology }, { intervals, zone }) {
  let least = Infinity;
  const wanted = (each) => {
    // Counted after what comes behind it: a hole.
    const late = each.txid > least;
    least = Math.min(least, each.txid);
    return each.reason || each.requested_by || (late && each.triggered_by);
  };
  const asked = [...intervals].reverse().filter(wanted).slice(0, CORRECTED_MAX);
  const line = (each) => h("li", { key: each.txid },
    `${covers(each.start, each.end, zone)}: `, txidLink(topology, each.counts ?? each.txid), each.kind === "skip" && each.counts === each.txid ? " gives it up" : " counts it", because(each));
  return asked.length > 0 && h("ul", { class: "holes", label: "Why" }, asked.map(line));
}

function noHole(data) {
  if (!data.intervals.length) return "No hole is in this window.";
  if (whole(data)) return "No hole: every interval between the first and the last is counted.";
  return "No hole between the intervals that are shown.";
}

// What is shown is all that is counted.
function whole({ span, more }) {
  return !more && Date.parse(span.start) <= Date.parse(span.first) && Date.parse(span.end) >= Date.parse(span.last);
}

function elsewhere({ topology, one }, data) {
  const { gaps, whole_to: first, zone } = one.topology;
  if (!gaps || !first || whole(data)) return null;
  const [at, half] = [Date.parse(first), (days(data) * DAY) / 2];
  const where = { from: iso(at - half), to: iso(at + half) };
  const to = inside(href(topology, "completeness", where), {}, `behind ${upTo(first, zone)}`);
  return p("ill", `${many(gaps, "hole")} elsewhere, the first `, to, ".");
}

function days({ intervals }) {
  return lengthOf(intervals) > LONG_HOURS ? WIDE_DAYS : NARROW_DAYS;
}

function summary({ intervals, gaps, more }) {
  const holes = gaps.length === 0 ? "none missing between them" : `${many(gaps.length, "hole")} between them`;
  return `${digits(intervals.length)}${more ? "+" : ""} ${name(intervals)} · ${holes}`;
}

function name(intervals) {
  const words = unit(lengthOf(intervals));
  return intervals.length === 1 ? words.replace(/s$/, "") : words;
}

function windows({ topology, address }, data) {
  const { span } = data;
  const [start, end, length] = [Date.parse(span.start), Date.parse(span.end), days(data) * DAY];
  const older = start > Date.parse(span.first) && { from: iso(start - length), to: iso(start) };
  const newer = end < Date.parse(span.last) && { from: iso(end), to: iso(end + length) };
  const to = (where, words) => where && step(href(topology, "completeness", where), words);
  return p("pager", to(older, "Earlier"), to(newer, "Later"), address.from && to({}, "Newest"));
}

function holes(view, gaps, zone, open) {
  return h("ul", { class: "holes", label: "Not counted" }, gaps.map((gap) => h("li", { key: gap.start },
    h("strong", {}, `Not counted: ${covers(gap.start, gap.end, zone)}`), ` (${zone ?? "UTC"}): `,
    gap.txid == null
      ? [lacks(gap, view.topology, zone), " ", button("Count it…", () => open(gap), { ...may(view.one), class: "small" })]
      : [txidLink(view.topology, gap.txid), ` has it, and is ${gap.status}`])));
}

function lacks({ start, end, given_up: by }, topology, zone) {
  if (!by) return "no batch has it";
  const whole = by.start === start && by.end === end;
  return [whole ? "" : `no batch has it; ${covers(by.start, by.end, zone)}: `, txidLink(topology, by.txid), " was given up", on(by.at), because(by)];
}
