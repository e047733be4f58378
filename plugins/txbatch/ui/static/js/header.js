// The header: what everybody asks first, the acts on the topology, and the tabs.

import { countAgain, verify } from "./acts.js";
import { href, ofAirflow } from "./address.js";
import { bdi, h, p } from "./dom.js";
import { button, inside, outside, since } from "./pieces.js";
import { digits, hours, unit, upTo, zoneOf } from "./words.js";

export const PAGES = [
  ["transactions", "Transactions"],
  ["completeness", "Completeness"],
  ["batch", "Batch"],
  ["why", "Why"],
  ["changes", "Changes"],
];
export const NOT_YOURS = "You may not trigger this DAG.";
const NO_DAG = "Airflow has no DAG of this topology.";

export function header(view) {
  const { topology: name } = view;
  return h("header", {},
    h("div", { class: "top" },
      h("h1", {}, inside("?", { class: "quiet" }, "Topologies"), h("span", { class: "quiet" }, " / "), bdi(name)),
      view.one && p("told", told(view)),
      view.one && acts(view)),
    h("nav", { label: "Pages of the topology" }, PAGES.map(([page, title]) => tab(view, page, title))));
}

function told({ one, batches }) {
  const { by_interval: byTime, zone, whole_to: whole } = one.topology;
  const parts = [byTime ? `${unitOf(batches)} of ${zoneOf(zone)}` : "by offset"];
  if (whole) parts.push(`whole up to ${upTo(whole, zone)}`);
  parts.push(...newestOf(one.topology));
  if (one.paused) parts.push(h("strong", { class: "paused" }, "the DAG is paused"));
  return parts.flatMap((each, at) => (at ? [" · ", each] : [each]));
}

function newestOf({ newest_txid: newest, current_to_txid: current, committed_at: committed }) {
  if (newest == null) return [];
  const words = `newest txid ${digits(newest)}`;
  if (!committed) return [words];
  if (newest === current) return [[words, ", ", since(committed)]];
  return [words, [`txid ${digits(current)} committed `, since(committed)]];
}

export function unitOf(batches) {
  const timed = batches?.find((each) => each.start && each.end);
  return timed ? unit(hours(timed.start, timed.end)) : "intervals";
}

function acts(view) {
  const { one, topology } = view;
  const newest = one.topology.current_to_txid;
  return h("div", { class: "acts" },
    hasDag(one) && outside(ofAirflow("dags", topology), { class: "button" }, "DAG"),
    newest != null && button("Count again…", () => countAgain(view, null), may(one)),
    one.dags.verify && button("Verify…", () => verify(view), may(one)),
    one.dags.rebuild && outside(ofAirflow("dags", one.dags.rebuild), { class: "button" }, "Rebuild"),
    !one.may_trigger && h("span", { id: "may", class: "quiet" }, may(one).title));
}

// Return the attributes of a button that triggers the topology's DAG.
export function may(one) {
  return one.may_trigger ? {} : { disabled: true, "aria-describedby": "may", title: hasDag(one) ? NOT_YOURS : NO_DAG };
}

export function hasDag(one) {
  return one.paused !== null;
}

function tab({ topology, page }, name, title) {
  return inside(href(topology, name), { "aria-current": page === name ? "page" : null }, title);
}
