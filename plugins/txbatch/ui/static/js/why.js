// The page Why: a key's value, what it was as of any txid, and the batches that make it up.

import { go, href } from "./address.js";
import { route } from "./api.js";
import { value } from "./changes.js";
import { bdi, h, mark, p } from "./dom.js";
import { field, form, ill, inside, refused, runLink, shown, stale, table, txidLink, well } from "./pieces.js";
import { chosen, folded, lost, noValues, past, stateField } from "./states.js";
import { clip, covers, digits, many, when } from "./words.js";

export function why(view) {
  const { store, topology, one, address } = view;
  const state = chosen(one, address.state);
  if (!one.show_values || !state) return noValues(one);
  const path = route(topology, "states", state.state);
  const gone = lost(one, address.state);
  if (gone) return [ask(view, state, path), gone];
  const asked = address.key.length === state.keys.length;
  return [
    ask(view, state, path),
    asked ? answer(view, state, path) : keysToChoose(view, state, path),
    folded(state),
  ];
}

function ask(view, state, path) {
  const { topology, one, address, store } = view;
  const done = (values) => {
    const key = values.getAll("key");
    go(href(topology, "why", { state: state.state, key: key.some(Boolean) ? key : [] }));
  };
  const complete = (event, at) => {
    const before = [...event.target.form.querySelectorAll("[name=key]")].slice(0, at).map((each) => each.value);
    const asked = { key: before, starts: event.target.value, limit: 20 };
    view.later(() => event.target.isConnected && store.need("keys", `${path}/keys`, asked));
  };
  const given = store.peek("keys")?.rows ?? [];
  const fields = state.keys.map((column, at) => {
    const id = `keys-${at}`;
    const options = [...new Set(given.map((row) => row[at]))].map((each) => h("option", { value: each ?? "", key: each }));
    return field(column.name, "key", {
      ...{ value: address.key[at] ?? "", list: id, title: column.type, key: `${state.state}:${at}` },
      on: { input: (event) => complete(event, at) },
    }, h("datalist", { id }, options));
  });
  return form("Which number", "Why", done,
    stateField(one, state, (name) => go(href(topology, "why", { state: name }))), fields);
}

function keysToChoose({ store, topology }, state, path) {
  const entry = store.need("choice", `${path}/keys`, { limit: 50 });
  const item = (row) => h("li", { key: JSON.stringify(row) }, link(topology, state, row));
  return shown(entry, ({ rows, more }) =>
    rows.length === 0
      ? p("empty", "This state has no key yet.")
      : [p("quiet", more ? "Some of its keys:" : "Its keys:"), h("ul", { class: "keys" }, rows.map(item))]);
}

function link(topology, state, row) {
  const to = href(topology, "why", { state: state.state, key: row.map((each) => each ?? "") });
  return inside(to, {}, row.map((each, at) => [at ? " · " : "", bdi(each ?? "null")]));
}

function answer(view, state, path) {
  const { store, address } = view;
  if (!state.past_kept) return past(state);
  const entry = store.need("why", `${path}/why`, { key: address.key });
  const now = view.one.topology.current_to_txid ?? view.one.topology.newest_txid ?? 1;
  const found = address.at && store.need("committed", route(view.topology, "committed"), { before: address.at });
  const asked = Number(found ? (found.data?.txid ?? now) : (address.as_of ?? now));
  const then = Number.isInteger(asked) ? Math.min(Math.max(asked, state.horizon), now) : now;
  return shown(entry, (data) => [
    slider(view, state, path, data, then, now),
    ofTime(view, state, found),
    then === now && sum(data),
    versions(view, then === now ? data : asOf(data, then)),
  ]);
}

function asOf(data, then) {
  const known = data.versions.filter((each) => each.txid <= then);
  return { ...data, versions: known.map((each) => ({ ...each, counts: !each.replaced_by || each.replaced_by > then })) };
}

function slider(view, state, path, data, then, now) {
  const { store, address } = view;
  const entry = then === now ? null : store.need("as-of", `${path}/as-of`, { key: address.key, txid: then });
  const told = then === now ? `now, txid ${digits(now)}` : `txid ${digits(then)}`;
  const asking = entry?.asking && entry.of !== entry.question;
  const of = asking ? "asking…" : moments(entry ? entry.data : view.one.topology, view.one.topology.zone);
  const move = (event) => view.later(() => to(view, state, Number(event.target.value), now));
  return h("section", { class: "past", label: "As of" },
    h("div", { class: "slider" },
      h("label", { for: "as-of" }, `as of ${told}`),
      h("input", { id: "as-of", type: "range", min: state.horizon, max: now, step: 1, value: then, "aria-valuetext": of ? `${told}, ${of}` : told, key: "as-of", on: { input: move } }),
      mark("now", "quiet")),
    p("quiet", of ?? "–"),
    entry?.error ? refused(entry.error) : numbers(data.columns, entry ? entry.data?.row : data.value, entry));
}

// The form that asks which txid was committed last before a time, where the reader is.
function ofTime({ topology, address }, state, found) {
  const done = (values) => go(href(topology, "why", { state: state.state, key: address.key, at: new Date(values.get("time")).toISOString() }));
  return [
    form("As of a time", "Go", done, field("as it was at", "time", { type: "datetime-local", required: true, key: "time" })),
    found?.error ? refused(found.error) : found?.data && (found.data.txid ?? -1) < state.horizon && ill("Nothing that is kept was committed before then."),
  ];
}

function moments(batch, zone) {
  if (!batch) return null;
  const { committed_at: committed, start, end } = batch;
  return (committed ? `committed ${when(committed)}` : "not committed") + (start ? ` · covers ${covers(start, end, zone)}` : "");
}

function to(view, state, txid, now) {
  const { topology, address } = view;
  go(href(topology, "why", { state: state.state, key: address.key, as_of: txid === now ? null : txid }), { replace: true });
}

function numbers(columns, row, entry) {
  const pairs = columns.map((column, at) =>
    h("div", { key: column.name }, h("dt", { title: column.type }, bdi(column.name)), h("dd", {}, row ? value(row[at]) : "–")));
  return h("dl", { class: `numbers ${stale(entry) ?? ""}`, "aria-live": "polite", "aria-busy": entry?.asking ? "true" : "false" }, pairs);
}

function sum({ equal, versions: all, more, value: row }) {
  const counting = all.filter((each) => each.counts && each.position !== null).length;
  const folds = all.some((each) => each.position === null);
  const count = `${many(counting, "contribution")}${folds ? " and what is folded" : ""}`;
  if (row === null && all.every((each) => !each.counts)) return p("empty", "No batch that counts has this key.");
  if (equal === null) return p("quiet", `${count}; the job's own Python alone can tell to what they amount.`);
  if (!equal) return ill(`✗ The contributions do not amount to the value: somebody changed it outside.`);
  return well(more ? `The contributions amount to the value; the first ${digits(all.length)} are shown.` : `${count} ${counting === 1 && !folds ? "amounts" : "amount"} to the value`);
}

function versions(view, { columns, versions: all }) {
  const values = columns.map((each) => ["number", bdi(each.name), each.type]);
  const heads = [["number", "position"], ["", "counted by"], ...values, ["", "covers"], ["wide", "run"], ["", "read"]];
  return table("Contributions", heads, all.map((each) => version(view, each)));
}

function version({ topology, one }, each) {
  const by = each.counts ? txidLink(topology, each.txid) : [`until ${each.replaced_by}: `, txidLink(topology, each.txid)];
  const folds = each.position === null;
  const asked = each.reason && h("span", { class: "reason" }, " “", bdi(clip(each.reason)), "”", each.requested_by && [" (", bdi(each.requested_by), ")"]);
  return [`${each.position}:${each.txid}`, [
    folds ? "folded" : digits(each.position),
    [folds ? `up to txid ${digits(each.txid)}` : by, asked],
    ...each.values.map(value),
    covers(each.start, each.end, one.topology.zone),
    folds ? "" : runLink(each.dag_id, each.run_id),
    each.reads.map((file, at) => [at ? ", " : "", h("bdi", { class: "file" }, file)]),
  ], each.counts ? "" : "replaced"];
}
