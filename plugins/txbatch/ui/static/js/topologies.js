// The list of topologies that the reader may see.

import { href } from "./address.js";
import { bdi, h, p } from "./dom.js";
import { inside, loud, shown, since, table } from "./pieces.js";
import { digits, upTo } from "./words.js";

const COLUMNS = [
  ...[["", "topology"], ["", "complete to"], ["number", "holes"], ["number", "failing"]],
  ...[["number", "waiting"], ["number", "in flight"], ["number", "newest"], ["wide", "committed"]],
];

export function topologies({ store }) {
  const entry = store.need("topologies", "topologies");
  return [h("header", {}, h("div", { class: "top" }, h("h1", {}, "Topologies"))), h("main", {}, shown(entry, list))];
}

function list({ topologies: all }) {
  if (all.length === 0) return p("empty", "There is no topology that you may see.");
  return table("Topologies", COLUMNS, all.map((each) => [each.topology, row(each), ""]));
}

function row(each) {
  return [
    inside(href(each.topology, "transactions"), {}, bdi(each.topology)),
    each.whole_to ? upTo(each.whole_to, each.zone) : "–",
    each.by_interval ? loud(each.gaps, "hole") : "–",
    loud(each.failing, "fails"),
    loud(each.waiting, "waits"),
    loud(each.in_flight, "flying"),
    digits(each.newest_txid),
    each.committed_at ? since(each.committed_at) : "–",
  ];
}
