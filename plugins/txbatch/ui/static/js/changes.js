// The page Changes: what differs in a state between two txids.

import { go, href } from "./address.js";
import { route } from "./api.js";
import { bdi, h, p } from "./dom.js";
import { because, choice, field, form, inside, shown, stateOf, table, txidLink, well } from "./pieces.js";
import { digits, many } from "./words.js";
import { chosen, lost, noValues, past, stateField } from "./states.js";

const NUMBER = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i;

export function changes(view) {
  const { store, topology, one, address } = view;
  const state = chosen(one, address.state);
  if (!one.show_values || !state) return noValues(one);
  const newest = one.topology.current_to_txid;
  if (newest == null) return p("empty", "No batch is committed yet.");
  let to = address.to ?? newest;
  let from = address.from ?? Math.max(to - 1, state.horizon);
  if (Number(from) > Number(to)) [from, to] = [to, from];
  const path = route(topology, "states", state.state, "changes");
  return [
    ask(view, state, from, to),
    ofBatch(view, Number(from), Number(to)),
    lost(one, address.state) ?? (state.past_kept ? shown(store.need("changes", path, { from, to }), (data) => found(topology, data)) : past(state)),
  ];
}

function ask({ topology, one }, state, from, to) {
  const done = (values) => go(href(topology, "changes", { state: values.get("state"), from: values.get("from"), to: values.get("to") }));
  const number = (label, name, value) =>
    field(label, name, { type: "number", min: name === "from" ? state.horizon : 1, max: one.topology.newest_txid, value, required: true, key: name });
  return form("Two txids", "Show", done,
    stateField(one, state, (name) => go(href(topology, "changes", { state: name, from, to }))),
    choice(href(topology, "changes", { state: state.state }), "what did the last batch change"),
    number("from txid", "from", from), number("to txid", "to", to));
}

function ofBatch({ store, topology, one }, from, to) {
  if (to - from !== 1 || to > one.topology.newest_txid) return null;
  return shown(store.need("batch of changes", route(topology, "batches", to)), ({ batch, triggered_by }) =>
    p("", txidLink(topology, to), ": ", stateOf(batch), because({ ...batch, triggered_by })));
}

function found(topology, data) {
  if (data.rows.length === 0) return well(`Nothing differs between txid ${data.from_txid} and txid ${data.to_txid}.`);
  const told = `${many(data.rows.length, "key")} ${data.rows.length === 1 ? "differs" : "differ"} between txid ${digits(data.from_txid)} and txid ${digits(data.to_txid)}${data.more ? ", and more" : ""}.`;
  return [h("p", { "aria-live": "polite" }, told), changesTable(topology, data)];
}

// Return the rows before and after, the greatest change first; with a topology they lead to Why.
export function changesTable(topology, data) {
  if (data.rows.length === 0) return p("quiet", "No key has changed.");
  const columns = [...data.keys, ...data.values].map((each, at) => [at < data.keys.length ? "" : "number", bdi(each.name), each.type]);
  const rows = [...data.rows].sort((one, other) => size(other) - size(one)).map((each) => row(topology, data, each));
  return [
    table("Values before and after", columns, rows),
    data.more && p("quiet", `${digits(data.rows.length)} are shown; there are more.`),
  ];
}

function row(topology, data, { key, before, after }) {
  const to = href(topology, "why", { state: data.state, key: key.map((each) => each ?? "") });
  const keys = key.map((each, at) => (at || topology === null ? value(each) : inside(to, { title: "Why" }, value(each))));
  const values = data.values.map((_, at) => pair(before?.[at], after?.[at], before, after));
  return [JSON.stringify(key), [...keys, ...values]];
}

function pair(was, is, before, after) {
  if (before && after && was === is) return h("span", { class: "quiet" }, value(is));
  return [h("span", { class: "was" }, before ? value(was) : "–"), h("span", { class: "arrow", role: "img", label: "becomes" }, " → "), h("b", {}, after ? value(is) : "–")];
}

export function value(text) {
  return text === null || text === undefined ? h("i", { class: "quiet" }, "null") : bdi(text);
}

function size({ before, after }) {
  const values = (before ?? after).map((_, at) => Math.abs(number(after?.[at]) - number(before?.[at])));
  return Math.max(...values, 0);
}

function number(text) {
  return typeof text === "string" && NUMBER.test(text) ? Number(text) : 0;
}
