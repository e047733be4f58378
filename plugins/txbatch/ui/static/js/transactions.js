// The page Transactions: facts, the bar of all txids, the window, failures, waits, the table.

import { go, href, ofAirflow } from "./address.js";
import { route } from "./api.js";
import { bdi, h, p } from "./dom.js";
import { codeIn } from "./explain.js";
import { hasDag } from "./header.js";
import { legendOf, look } from "./looks.js";
import { overviewBar, WINDOW } from "./overview.js";
import { button, facts, field, form, inside, loud, outside, runLink, shown, since, stateOf, step, table, txidLink, well } from "./pieces.js";
import { legend, strip } from "./strip.js";
import { clip, covers, digits, many, took } from "./words.js";

const COLUMNS = [
  ...[["number", "txid"], ["", "covers"], ["", "state"], ["number", "records"]],
  ...[["number", "keys"], ["number", "tries"], ["number wide", "took"], ["wide", "run"]],
];

export function transactions(view) {
  const { one, batches, address } = view;
  if (one.topology.newest_txid == null) return nothing(view);
  const waitingOnly = address.show === "waiting";
  return [
    overallFacts(view),
    batches?.length ? around(view, batches) : null,
    h("div", { class: "bar" }, pager(view), goTo(view), filters(view)),
    waitingOnly ? null : failures(one, view.topology),
    waits(one, view.topology),
    waitingOnly || !batches ? null : list(view, batches),
  ];
}

function nothing({ topology, one }) {
  if (!hasDag(one)) return p("empty", "No batch yet, and Airflow has no DAG of this topology.");
  const link = outside(ofAirflow("dags", topology), {}, "trigger the DAG");
  return p("empty", "No batch yet: ", link, ".");
}

function overallFacts({ one, topology }) {
  const { newest_txid: newest, gaps, in_flight: flying, waiting, failing, left_out: away } = one.topology;
  const holes = loud(gaps, "hole", gaps === 1 ? " hole" : " holes");
  return facts("At a glance", [
    h("span", {}, h("b", {}, digits(newest)), " newest"),
    one.topology.by_interval && (gaps ? inside(href(topology, "completeness"), {}, holes) : holes),
    away > 0 && inside(href(topology, "completeness"), { class: "hole" }, `${many(away, "partition")} left out`),
    loud(flying, "flying", " in flight"),
    loud(waiting, "waits", " waiting"),
    loud(failing, "fails", " failing"),
  ]);
}

function around({ topology, store, one }, batches) {
  const zone = one.topology.zone;
  const all = store.need("overview", route(topology, "overview"));
  const last = batches[0].txid;
  return [
    shown(all, (data) => data.last && overviewBar(topology, data, batches.at(-1).txid, last)),
    strip(topology, batches, zone),
    legend(legendOf(batches.map(look)), batches.some((each) => each.attempts > 1)),
  ];
}

function pager({ topology, address: { before, show }, batches, one, next }) {
  const to = (txid, words) => step(href(topology, "transactions", { before: txid, show }), words);
  // Of those that failed nobody tells how many are in between.
  const above = before && !show && batches?.length ? batches[0].txid + WINDOW + 1 : null;
  return h("span", { class: "pager" }, before && to(null, "Newest"), above && above <= one.topology.newest_txid && to(above, "Newer"), next && to(next, "Older"));
}

function goTo({ topology, one }) {
  const done = (values) => go(href(topology, "batch", { txid: values.get("txid") }));
  const asked = { type: "number", min: 1, max: one.topology.newest_txid, required: true, key: "txid" };
  return form("Go to a txid", "Go", done, field("go to txid", "txid", asked));
}

function filters({ topology, address }) {
  const toggle = (name, words) => {
    const on = address.show === name;
    const to = () => go(href(topology, "transactions", { show: on ? null : name }));
    return button(words, to, { "aria-pressed": on ? "true" : "false", key: name });
  };
  return h("span", { class: "filters" }, toggle("failed", "Failing only"), toggle("waiting", "Waiting only"));
}

function failures(one, topology) {
  const line = (each) => h("li", { key: each.attempt },
    txidLink(topology, each.txid, `Attempt ${each.attempt}`), " failed ", each.finished_at && since(each.finished_at),
    each.error && [": ", bdi(clip(each.error.split("\n")[0]))], " ", codeIn(each.error_code ?? each.error));
  return one.failing.length ? h("ul", { class: "failures", label: "Failing" }, one.failing.map(line)) : null;
}

function waits(one, topology) {
  if (one.waiting.length === 0) {
    return one.failing.length || one.topology.left_out ? null : well("Nothing waits, and nothing fails.");
  }
  const line = (each) => h("li", { key: `${each.txid}:${each.run}` },
    each.txid == null ? ["Run ", ofRun(each.run ?? "?", topology)] : txidLink(topology, each.txid), " ", ...wait(each, topology));
  return h("ul", { class: "waits", label: "Waiting" }, one.waiting.map(line));
}

// A run of the topology's DAG is called as Airflow calls it.
function ofRun(name, topology) {
  const ofDag = `airflow:${topology}:`;
  return h("bdi", { class: "run" }, name.startsWith(ofDag) ? name.slice(ofDag.length) : name);
}

function wait(each, topology) {
  const of = each.waits_for_run ? [" of run ", ofRun(each.waits_for_run, topology)] : "";
  const dead = each.alive ? "" : h("strong", {}, ", which shows no sign of life");
  return [`waits ${took(each.seconds).replace(".0", "")} for `, txidLink(topology, each.waits_for_txid), of, dead];
}

export function list(view, batches) {
  if (batches.length === 0) return well(view.address.show === "failed" ? "No batch is failing." : "No batch is here.");
  const { zone } = view.one.topology;
  const rows = batches.map((each) => [String(each.txid), row(view, each, zone), `look-${look(each)}`]);
  return table("Batches, newest first", COLUMNS, rows);
}

function row({ topology }, each, zone) {
  return [
    txidLink(topology, each.txid, digits(each.txid)),
    each.kind === "restate" ? txidLink(topology, each.position, each.start ? covers(each.start, each.end, zone) : `as txid ${each.position}`) : covers(each.start, each.end, zone),
    stateOf(each),
    digits(each.records),
    keysOf(each),
    digits(each.attempts),
    took(each.seconds),
    runLink(each.dag_id, each.run_id),
  ];
}

function keysOf(each) {
  const counts = Object.entries(each.keys ?? {});
  if (counts.length === 0) return "–";
  if (counts.length === 1) return digits(counts[0][1]);
  return h("span", { title: counts.map(([name, count]) => `${name}: ${count}`).join(", ") },
    digits(counts.reduce((sum, [, count]) => sum + BigInt(count), 0n)));
}
