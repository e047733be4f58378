// Pieces of which the pages are made: tables, facts, links, notices, forms.

import { follow, href, leave, ofAirflow } from "./address.js";
import { bdi, h, mark, p, region } from "./dom.js";
import { look, shape, state } from "./looks.js";
import { ago, at, capital, clip, digits, when } from "./words.js";

export function inside(address, props, ...words) {
  return h("a", { href: address, on: { click: follow }, ...props }, ...words);
}

export function step(address, words) {
  return inside(address, { class: "button" }, words);
}

// Return one of several links; `on`: it leads to what is shown.
export function choice(address, words, on) {
  return inside(address, { class: "choice", "aria-current": on ? "true" : null }, words);
}

export function outside(address, props, ...words) {
  return h("a", { href: address, on: { click: leave }, ...props }, ...words);
}

// Return the link to a run of a DAG; a dash if there is none.
export function runLink(dagId, runId) {
  if (!dagId || !runId) return runId ? h("span", { class: "quiet" }, runId) : "–";
  return outside(ofAirflow("dags", dagId, "runs", runId), { class: "run", title: runId }, runId);
}

export function txidLink(topology, txid, words = `txid ${txid}`) {
  return inside(href(topology, "batch", { txid }), {}, words);
}

export function stateOf(batch) {
  const now = look(batch);
  return h("span", { class: `state look-${now}` }, mark(shape(now), "shape"), " ", state(batch));
}

// Return a moment, with its day if that is not today.
export function moment(text) {
  if (!text) return "–";
  return h("time", { datetime: text, title: text }, when(text));
}

// Return when something was done, in brackets; nothing if no one tells.
export function on(text) {
  return text && [" (", moment(text), ")"];
}

export function since(text) {
  const { day, minute } = at(text, undefined);
  return h("time", { datetime: text, title: `${day} ${minute}` }, ago(text));
}

export function facts(label, list) {
  const there = list.filter(Boolean);
  return h("ul", { class: "facts", label, "aria-live": "polite" }, there.map((each) => h("li", {}, each)));
}

// Return a number that stands out unless it is nought.
export function loud(count, kind, ...words) {
  return h("span", { class: count ? kind : "quiet" }, h("b", {}, digits(count)), ...words);
}

// Return a table that scrolls: `columns` as [class, words, title], `rows` as [key, cells, class]. An empty column is left out.
export function table(label, columns, rows) {
  const there = columns.map((_, at) => at).filter((at) => rows.some(([, cells]) => cells[at] && cells[at] !== "–"));
  const heads = there.map((at) => columns[at]).map(([kind, words, title]) => h("th", { scope: "col", class: kind, title }, words));
  const body = rows.map(([key, cells, kind]) =>
    h("tr", { key, class: kind }, there.map((at) => h("td", { class: columns[at][0] }, cells[at]))));
  return h("div", { class: "scrolls", ...region(label) }, h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body)));
}

export function well(...words) {
  return p("well", mark("✓ "), ...words);
}

export function ill(...words) {
  return h("p", { class: "ill", role: "status" }, ...words);
}

export function because(by) {
  const { reason, requested_by: who, triggered_by: user } = by ?? {};
  return [who && ["; asked for by ", bdi(who)], reason && [": “", bdi(clip(reason, 2000)), "”"], user && ["; its run was triggered by ", bdi(user)]];
}

// Return the content of a slot, or that it is asked, or what its question was refused with.
export function shown(entry, content) {
  const waits = entry.asking && entry.data === undefined;
  return h("div", { class: stale(entry), "aria-busy": entry.asking ? "true" : "false" },
    waits && p("quiet asking", "asking…"),
    entry.error && refused(entry.error),
    entry.data !== undefined && content(entry.data));
}

// Return the class of what answers another question than the one asked.
export function stale(entry) {
  return entry?.data !== undefined && entry.of !== entry.question ? "stale" : null;
}

export function refused(error) {
  return error.busy ? h("p", { class: "quiet", role: "status" }, refusal(error)) : ill(refusal(error));
}

// Return what a refused request is told by.
export function refusal(error) {
  return capital(error.message) + (/[.!?]$/.test(error.message) ? "" : ".");
}

export function button(words, click, props = {}) {
  return h("button", { type: "button", on: { click }, ...props }, words);
}

export function field(label, name, props = {}, ...more) {
  return h("label", { class: "field" }, h("span", {}, label), h("input", { name, autocomplete: "off", ...props }), ...more);
}

// Return a form of one line, whose values go to `done`; the button has the words `act`.
export function form(label, act, done, ...fields) {
  const submit = (event, node) => {
    event.preventDefault();
    done(new FormData(node));
  };
  return h("form", { class: "line", label, on: { submit } }, fields, h("button", { type: "submit" }, act));
}
