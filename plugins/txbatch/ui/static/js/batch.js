// The page Batch: what it covers, the proof that it counts once, its times and changes.

import { countAgain, countHole, giveUp, verify } from "./acts.js";
import { go, href, ofAirflow } from "./address.js";
import { route } from "./api.js";
import { changesTable } from "./changes.js";
import { bdi, h, mark, p, region } from "./dom.js";
import { codeIn } from "./explain.js";
import { may } from "./header.js";
import { because, button, choice, facts, ill, inside, moment, on, outside, runLink, shown, stateOf, table, txidLink } from "./pieces.js";
import { clip, covers, digits, many, took } from "./words.js";

const AS_READ = " counts records of it as read.";
const READS = [["", "stream"], ["", "read"], ["number", "from"], ["number", "to"], ["number", "records"], ["", ""]];

// Return the page of a batch: the one in the address, else the newest.
export function batch(view) {
  const { store, topology, one, address } = view;
  const txid = address.txid ?? one.topology.newest_txid;
  if (txid == null) return p("empty", "No batch yet.");
  if (!/^\d+$/.test(txid)) return ill("Txid is a number from 1 to 9223372036854775807.");
  const entry = store.need("batch", route(topology, "batches", txid));
  return shown(entry, (detail) => whole(view, detail));
}

function whole(view, detail) {
  const now = detail.batch;
  return [
    title(view, now),
    factsOf(view, detail),
    fate(view, detail),
    proof(view, detail),
    timeline(detail),
    changed(view, now),
    attempts(detail),
    reads(detail),
  ];
}

function title(view, now) {
  const { topology, one } = view;
  const newest = one.topology.newest_txid;
  const step = (txid, words, label) => {
    const there = txid >= 1 && txid <= newest;
    return button(words, () => go(href(topology, "batch", { txid })), { label: `${label}: ${txid}`, disabled: !there, key: label });
  };
  return h("div", { class: "title" },
    step(now.txid - 1, `‹ ${digits(now.txid - 1)}`, "The batch before"),
    h("h2", {}, `txid ${digits(now.txid)}`),
    step(now.txid + 1, `${digits(now.txid + 1)} ›`, "The batch after"),
    stateOf(now),
    h("span", { class: "acts" }, actsOn(view, now)));
}

function actsOn(view, now) {
  if (now.status === "committed") return button("Count again…", () => countAgain(view, now), may(view.one));
  if (now.status === "aborted") return null;
  return button("Give up…", () => giveUp(view, now), may(view.one));
}

function factsOf({ one, topology }, { batch: now, triggered_by: who }) {
  const records = many(now.records ?? "0", "record");
  const kept = Object.values(now.kept ?? {});
  const ofKept = kept.length === 1 && kept[0] !== now.records ? `${digits(kept[0])} kept` : null;
  return facts("The batch", [
    now.kind === "restate" && ["counts ", txidLink(topology, now.position), " again"],
    now.start && `covers ${covers(now.start, now.end, one.topology.zone)}`,
    now.records != null && records,
    ofKept,
    ...Object.entries(now.keys ?? {}).map(([state, count], at, all) => `${many(count, "key")}${all.length > 1 ? ` of ${state}` : ""}`),
    ...Object.entries(now.late ?? {}).map(([state, count]) => `${many(count, "late record")} of ${state}`),
    many(now.attempts, "attempt"),
    now.emit_seconds != null && `Spark ${took(now.emit_seconds)}`,
    now.seconds != null && `planned to commit ${took(now.seconds)}`,
    now.run_id && ["run ", runLink(now.dag_id, now.run_id), who && [" triggered by ", bdi(who)]],
  ]);
}

function fate(view, { batch: now, restates, given_up_by: by, gives_up: of, interval_by: taken }) {
  const { topology } = view;
  if (now.replaced_by != null) {
    const last = counting(restates, now.replaced_by);
    return p("", "It does not count any more: ", txidLink(topology, last.txid), " counts in its place", because(last), ".");
  }
  const own = restates.find((each) => each.txid === now.txid);
  if (now.kind === "restate" && now.status === "committed") {
    return p("", "It counts in place of ", txidLink(topology, own?.replaced_txid ?? now.position),
      own?.records_before != null && `, which had ${many(own.records_before, "record")}`, because(own ?? now), ".");
  }
  const open = restates.find((each) => each.status !== "committed" && each.status !== "aborted" && each.txid !== now.txid);
  if (open) return p("", txidLink(topology, open.txid), " is going to count in its place", because(open), ".");
  if (now.status === "aborted") {
    return p("", "It was given up", on(now.aborted_at), " and counts nothing", because(now), ". ", by ? [txidLink(topology, by), AS_READ] : freed(view, now, taken));
  }
  if (now.kind === "skip") {
    return p("", "Its records count as read, and count nothing", because(now), ".", of && [" They are of ", txidLink(topology, of), "."]);
  }
  return now.reason ? p("", "Reason", because(now), ".") : null;
}

// What became of an interval that was given up.
function freed(view, now, taken) {
  const { topology, one } = view;
  if (taken) return [txidLink(topology, taken.txid), taken.status !== "committed" ? ` has its interval, and is ${taken.status}.` : taken.kind === "skip" ? AS_READ : " counts its interval now."];
  if (!now.start || now.kind === "restate") return null;
  const open = () => countHole(view, now, one.topology.zone);
  return ["No batch has all of its interval now. ", button("Count it…", open, { ...may(one), class: "small" }), " as on ", inside(href(topology, "completeness"), {}, "Completeness")];
}

// Who took its place may have been replaced, too.
function counting(restates, txid) {
  const by = restates.find((each) => each.txid === txid) ?? { txid };
  return by.replaced_by == null ? by : counting(restates, by.replaced_by);
}

function proof(view, { batch: now, proof: shownBy }) {
  if (now.status !== "committed" || now.kind === "skip") return null;
  const { attempts_tried: tried, attempt_that_counted: counted, records_read: read, records_of_partitions: parts } = shownBy;
  const sum = shownBy.equal === null
    ? line("–", shownBy.rebuilt ? "a rebuild has counted the batch anew since" : `${many(read ?? "0", "record")} read; its source keeps no number a partition`)
    : line(shownBy.equal ? "✓" : "✗", `${many(read, "record")} read ${shownBy.equal ? "=" : "≠"} ${digits(parts)} summed by stream and partition`, shownBy.equal ? "" : "ill");
  return h("section", { class: "proof", "aria-labelledby": "proof" },
    h("h3", { id: "proof" }, "Counted once"),
    h("ul", {},
      line(counted ? "✓" : "–", `${many(tried, "attempt")} tried, ${counted ?? "none"} was let through`),
      sum,
      verdict(view)));
}

function line(sign, words, kind = "") {
  return h("li", { class: kind || (sign === "✓" ? "well" : "") }, mark(`${sign} `), words);
}

function verdict(view) {
  const dag = view.one.dags.verify;
  if (!dag) return line("–", "not verified: no DAG does");
  const runs = outside(ofAirflow("dags", dag, "runs"), {}, "the runs of ", bdi(dag));
  return line("–", ["verified or not: see ", runs, " ", button("Verify…", () => verify(view), { ...may(view.one), class: "small" })]);
}

function timeline({ batch: now, attempts: tries }) {
  const lines = tries.map((each, at) => {
    const last = each.status === "committed" && now.committed_at;
    const parts = [at === 0 && ["planned ", moment(now.created_at)], [`emit ${each.attempt} `, h("b", {}, took(each.seconds))]];
    const waited = last && each.finished_at ? (Date.parse(last) - Date.parse(each.finished_at)) / 1000 : -1;
    if (waited >= 0) parts.push(["waited ", took(waited)]);
    parts.push(last ? ["committed ", moment(last)] : [`${each.status} `, each.finished_at && moment(each.finished_at)]);
    return h("li", { key: each.attempt, class: `of-${each.status}` }, parts.map((part) => part && h("span", {}, part)));
  });
  return lines.length ? h("ol", { class: "timeline", label: "When it happened" }, lines) : null;
}

function changed(view, now) {
  const { store, topology, one, address } = view;
  const states = one.states.filter((each) => each.past_kept);
  if (now.status !== "committed" || !one.show_values || states.length === 0) return null;
  const state = states.find((each) => each.state === address.state) ?? states[0];
  const path = route(topology, "batches", now.txid, "changes");
  const entry = store.need("changed", path, { state: state.state });
  return h("section", {}, h("h3", {}, "What it changed"),
    states.length > 1 && p("", states.map((each) =>
      [choice(href(topology, "batch", { txid: now.txid, state: each.state }), each.state, each === state), " "])),
    shown(entry, (data) => changesTable(topology, data)));
}

function attempts({ attempts: tries, more_attempts: more }) {
  if (tries.length === 0) return null;
  const item = (each) => h("li", { key: each.attempt, class: `of-${each.status}` },
    h("b", {}, each.attempt), ` ${each.status} `, moment(each.finished_at ?? each.started_at), each.error && failure(each));
  return h("section", {}, h("h3", {}, "Attempts"), h("ul", { class: "attempts" }, tries.map(item)), more && p("quiet", "The first 100 are shown."));
}

function failure({ error, error_code: code }) {
  const head = clip(error.split("\n")[0], 120);
  return [": ", bdi(head), " ", codeIn(code ?? error),
    head !== error && h("details", { key: "error" }, h("summary", {}, "the whole error"), h("pre", region("The whole error"), error))];
}

function reads({ reads: all, more_reads: more }) {
  if (all.length === 0) return null;
  const rows = all.map((each) => [`${each.stream}:${each.source}`, [
    each.stream && bdi(each.stream), h("bdi", { class: "file" }, each.source), each.start && bdi(each.start), each.end && bdi(each.end), digits(each.records),
    each.status === "read" ? "" : h("span", { class: "fails" }, each.status, each.reason && [": ", bdi(clip(each.reason))]),
  ], ""]);
  return h("section", {}, h("h3", {}, "What it read"), table("What it read", READS, rows), more && p("quiet", "The first 100 are shown."));
}
