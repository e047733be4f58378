// The header: what everybody asks first, the acts on the topology, and the tabs.

import { countAgain, verify } from "./acts.js";
import { href, ofAirflow } from "./address.js";
import { bdi, h, p } from "./dom.js";
import { button, inside, outside, since } from "./pieces.js";
import { capital, digits, HERE, lengthOf, unit, upTo } from "./words.js";

export const PAGES = ["transactions", "completeness", "batch", "why", "changes"];

export function header(view) {
  const { topology: name } = view;
  return h("header", {},
    h("div", { class: "top" },
      h("h1", {}, inside("?", { class: "quiet" }, "Topologies"), h("span", { class: "quiet" }, " / "), bdi(name)),
      view.one && p("told", told(view)),
      view.one && acts(view)),
    h("nav", { label: "Pages of the topology" }, PAGES.map((page) => tab(view, page))));
}

function told({ one, batches }) {
  const { by_interval: byTime, zone, whole_to: whole } = one.topology;
  const parts = [byTime ? `${unit(lengthOf(batches))} of ${zone ?? "UTC"}` : "not by time"];
  if (whole) parts.push(`complete up to ${upTo(whole, zone)}`);
  parts.push(...newestOf(one.topology));
  if (one.paused) parts.push(h("strong", { class: "paused" }, "the DAG is paused"));
  parts.push(`times of ${HERE}`);
  return parts.flatMap((each, at) => (at ? [" · ", each] : [each]));
}

function newestOf({ newest_txid: newest, current_to_txid: current, committed_at: committed }) {
  if (newest == null) return [];
  const words = `newest txid ${digits(newest)}`;
  if (!committed) return [words];
  if (newest === current) return [[words, ", ", since(committed)]];
  return [words, [`txid ${digits(current)} committed `, since(committed)]];
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
  return one.may_trigger ? {} : { disabled: true, "aria-describedby": "may", title: hasDag(one) ? "You may not trigger this DAG." : "Airflow has no DAG of this topology." };
}

export function hasDag(one) {
  return one.paused !== null;
}

function tab({ topology, page }, name) {
  return inside(href(topology, name), { "aria-current": page === name ? "page" : null }, capital(name));
}
