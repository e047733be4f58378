// Acts: each is a run of a DAG, triggered with the reader's own session. Airflow decides who may.

import { href, ofAirflow } from "./address.js";
import { get, route } from "./api.js";
import { open } from "./dialog.js";
import { bdi, h, p } from "./dom.js";
import { codeIn } from "./explain.js";
import { button, field, ill, inside, refusal, outside, stateOf, txidLink } from "./pieces.js";
import { findings, planned } from "./plan.js";
import { follow, leftBy, paused, trigger } from "./runs.js";
import { covers, digits, hours, lengthOf, many, plain, took, unit } from "./words.js";

const WHY_MAX = 1000;
const LISTED_MAX = 10;
const STATES = { queued: "is queued", running: "is running", success: "is done", failed: "has failed" };
// More words on a refusal, by its status; 0 is also for a proxy that failed.
const MORE = {
  0: " A run may have begun all the same: look at the DAG's runs before you ask again.",
  401: " Log in again, and then ask again.",
  403: " Airflow decides who may trigger a run.",
};

// Open the dialog that counts a batch again; without a batch a field asks which.
export function countAgain(view, batch) {
  open(batch ? `Count txid ${digits(batch.txid)} again` : "Count batches again", (hands) => {
    const conf = (values) => ({ restate: batch ? String(batch.txid) : values.get("restate").trim(), why: values.get("why").trim() });
    let planShown = false;
    const run = (asked, then = null) => {
      if (!hands.free()) return;
      planShown = false;
      act(view, hands, view.topology, asked, then);
    };
    const done = () => hands.valid() && run(conf(hands.values()));
    // "Do it" does what the plan is of.
    const plan = () => {
      if (!hands.valid("restate")) return;
      const given = conf(hands.values());
      const doIt = () => hands.valid() && run({ ...conf(hands.values()), restate: given.restate });
      run({ ...given, plan_only: true }, (ended) => {
        if (conf(hands.values()).restate !== given.restate) return hands.say(ill("Other txids were asked for meanwhile: plan again."));
        planShown = true;
        return showPlan(view, hands, ended, doIt);
      });
    };
    const drop = () => {
      if (planShown) hands.say();
      planShown = false;
    };
    return {
      told: [
        batch ? p("", ...nowCounts(batch)) : null,
        p("", "The run reads again what the batch read, and its new version counts in its place. Until then reports show the old numbers, and after it the new ones: never half."),
      ],
      fields: [batch ? null : field("txids or an interval", "restate", { required: true, placeholder: "3, 5 or 2013-01-03/2013-01-05", on: { input: drop } }), whyField()],
      buttons: [
        button("Plan first", plan, { class: "act" }),
        button("Count again", done, { class: "act primary" }),
      ],
    };
  });
}

function nowCounts(batch) {
  const keys = Object.entries(batch.keys ?? {}).map(([state, count]) => `${many(count, "key")} of ${state}`);
  const parts = [many(batch.records ?? "0", "record"), ...keys, batch.seconds != null && `took ${took(batch.seconds)}`];
  const does = batch.replaced_by == null ? "counts there now" : `counted there until txid ${batch.replaced_by} did`;
  return [`txid ${digits(batch.txid)} ${does}: `, parts.filter(Boolean).join(", "), "."];
}

export function countHole(view, gap, zone) {
  open("Count what is missing", (hands) => {
    const conf = { catch_up: `${gap.start}/${gap.end}` };
    return {
      told: [
        p("", h("strong", {}, covers(gap.start, gap.end, zone)), ` (${zone ?? "UTC"}): ${missing(view, gap)}, which no batch has.`),
        p("", "One run reads each interval of the schedule in this range, and counts each as a txid of its own. What is counted stays as it is."),
      ],
      fields: null,
      buttons: button("Count it", () => act(view, hands, view.topology, conf), { class: "act primary" }),
    };
  });
}

function missing({ intervals }, gap) {
  const length = lengthOf(intervals);
  if (!length) return "time between two intervals";
  const count = Math.max(1, Math.round(hours(gap.start, gap.end) / length));
  return many(count, unit(length).replace(/s$/, ""));
}

export function giveUp(view, batch) {
  open(`Give up txid ${digits(batch.txid)}`, (hands) => {
    const conf = (values) => {
      const partition = values.get("partition")?.trim();
      return {
        ...{ abort: batch.txid, why: values.get("why").trim() },
        ...(values.get("skip") || partition ? { abort_skip: true } : {}),
        ...(partition ? { abort_partition: partition } : {}),
      };
    };
    // Of one partition alone, records can only be counted as read.
    const lock = ({ target }) => {
      const [free, read] = target.form.elements.skip;
      const on = target.value.trim() !== "";
      if (on !== free.disabled) free.disabled = read.checked = on;
    };
    const byTime = view.one.topology.by_interval;
    const restate = batch.kind === "restate";
    const again = restate ? "what counts now stays" : `${byTime ? "Count it…" : "the next plan"} reads them again`;
    const free = (asked) => byTime && !restate && !asked.abort_skip && p("", "Nothing counts its interval now. Count it… does, on this page or on ", inside(href(view.topology, "completeness"), {}, "Completeness"), ".");
    const done = () => {
      const asked = conf(hands.values());
      if (hands.valid()) act(view, hands, view.topology, asked, null, free(asked));
    };
    const choice = (value, words) => h("label", { class: "check" }, h("input", { type: "radio", name: "skip", value, required: true }), words);
    const lost = batch.records == null ? "the records that its plan names" : many(batch.records, "record");
    return {
      told: [
        p("", `txid ${digits(batch.txid)} is ${batch.status}, and counts nothing yet. Given up, it never will.`),
      ],
      fields: [
        h("div", { role: "radiogroup", label: "Its records" },
          choice("", `free its records: ${again}`),
          choice("true", `count its records as read: ${lost} are lost to the numbers, until a restate counts them after all`)),
        byTime ? null : field("of one partition alone", "partition", { placeholder: "all", on: { input: lock } }),
        whyField(),
      ],
      buttons: button("Give up", done, { class: "act danger" }),
    };
  });
}

export function verify(view) {
  open("Verify", (hands) => ({
    told: [
      p("", "The DAG ", bdi(view.one.dags.verify), " reads committed batches again and compares them with the stored numbers. It changes nothing. It takes about as long as counting took."),
    ],
    fields: null,
    buttons: button("Verify", () => act(view, hands, view.one.dags.verify, {}), { class: "act primary" }),
  }));
}

function whyField() {
  return field("why", "why", { required: true, maxlength: WHY_MAX, placeholder: "kept with the batch" });
}

// `then` tells what the run left; else `next` is the step after a success.
async function act(view, hands, dagId, conf, then = null, next = null) {
  if (!hands.free()) return;
  hands.busy(true);
  hands.say("asking…");
  try {
    const runId = await trigger(dagId, conf);
    await watch(view, hands, dagId, runId, then, next);
  } catch (error) {
    hands.say(ill(refusal(error), MORE[error.status >= 500 ? 0 : error.status]));
  }
  hands.busy(false);
}

async function watch(view, hands, dagId, runId, then, next) {
  const isPaused = await paused(dagId);
  const first = (state) => p("", "Run ", outside(ofAirflow("dags", dagId, "runs", runId), {}, bdi(runId)), ` ${STATES[state] ?? state}`);
  const away = (error) => hands.say(first("is unknown just now"), ill(refusal(error), " Asking again…"));
  // While the run works, its batches are those of the page's own turns.
  const tell = (run) => hands.say(first(run.state), batchesOf(view, view.newest()?.filter((each) => each.run_id === runId)), note(run, isPaused));
  tell({ state: "queued" });
  view.soon();
  try {
    const ended = await follow(dagId, runId, hands.open, tell, away);
    view.soon();
    if (ended && then) await then({ ...ended, first: first(ended.state) });
    else if (ended) {
      const well = ended.state === "success";
      hands.say(first(ended.state), await came(view, dagId, runId).catch(() => null), note(ended, false), well && next);
      if (well) hands.done();
    }
  } catch (error) {
    hands.say(first("is followed no more"), ill(refusal(error)));
  }
}

// What came of a run: its batches, or what a run that verifies has found.
async function came(view, dagId, runId) {
  if (dagId !== view.topology) return findings(await leftBy(dagId, runId, "findings"));
  return batchesOf(view, (await get(route(dagId, "runs", runId))).batches);
}

function batchesOf({ topology }, batches = []) {
  const line = (each) => h("li", { key: each.txid }, txidLink(topology, each.txid), ": ", stateOf(each));
  const more = batches.length - LISTED_MAX;
  return h("ul", {}, batches.slice(0, LISTED_MAX).map(line), more > 0 && h("li", {}, `and ${many(more, "batch", "batches")} more`));
}

function note(run, isPaused) {
  if (run.note) return h("p", { class: run.state === "failed" ? "ill" : "" }, plain(run.note), " ", codeIn(run.note));
  if (isPaused && run.state === "queued") return ill("The DAG is paused: the run stays queued until somebody turns on the switch beside the DAG's name.");
  return null;
}

async function showPlan(view, hands, run, doIt) {
  if (run.state !== "success") return hands.say(run.first, note(run, false));
  const plan = await leftBy(view.topology, run.dag_run_id, "plan");
  return hands.say(run.first, plan === null ? note(run, false) : planned(plan, view.one.states),
    p("", "Nothing is changed yet. ", button("Do it", doIt, { class: "act primary" })));
}
