// The grid of partitions and txids; a line joins a hole to the batch that filled it.

import { go, href } from "./address.js";
import { route } from "./api.js";
import { bdi, h, p } from "./dom.js";
import { field, form, shown, since, step, txidLink, well } from "./pieces.js";
import { around, cell, stop } from "./roving.js";
import { legend } from "./strip.js";
import { clip, digits, many } from "./words.js";

const GROUP = "grid";
const TXIDS = 40;
const SHAPES = { read: ["✓", "committed", "read"], unreadable: ["", "hole", "not readable", "; a line leads to what filled it"], skipped: ["⊘", "skip", "given up"] };

export function grid({ store, topology, address, one }) {
  if (one.topology.newest_txid == null) return p("empty", "No batch yet.");
  const { after, search } = address;
  const last = address.last ?? one.topology.newest_txid;
  const first = address.first ?? Math.max(1, last - TXIDS + 1);
  const entry = store.need("partitions", route(topology, "partitions"), { first, last, after, search });
  return [
    !search && entry.data?.rows.length === 0 ? null : form("Find partitions", "Find", (values) => go(href(topology, "completeness", { by: "partitions", search: values.get("search"), first: address.first, last: address.last })),
      field("partition", "search", { type: "search", value: search ?? "", key: "search" })),
    shown(entry, (data) => found(topology, address, one, data)),
  ];
}

function found(topology, address, one, data) {
  if (data.rows.length === 0) return p("empty", address.search ? "No partition has such a name." : "Its source has no partitions.");
  const away = data.rows.filter((each) => each.unreadable_since_txid != null).length;
  return [
    pager(topology, address, one, data),
    away ? p("ill", `${many(away, "partition")} cannot be read.`) : well("Every partition that is shown can be read."),
    cells(topology, data),
  ];
}

function pager(topology, { search, after, first, last }, one, data) {
  const wide = data.last - data.first + 1;
  const to = (more, words) => step(href(topology, "completeness", { by: "partitions", search, ...more }), words);
  return h("p", { class: "pager" },
    data.first > 1 && to({ after, first: Math.max(1, data.first - wide), last: data.first - 1 }, "Earlier txids"),
    data.last < one.topology.newest_txid && to({ after, first: data.last + 1, last: data.last + wide }, "Later txids"),
    data.next && to({ after: data.next, first, last }, "More partitions"),
    after && to({ first, last }, "First partitions"));
}

function cells(topology, data) {
  const txids = Array.from({ length: data.last - data.first + 1 }, (_, at) => data.first + at);
  const by = new Map(data.cells.map((each) => [keyOf(each.stream, each.partition, each.txid), each]));
  const here = stop(GROUP, new Set(by.keys()), [...by.keys()].at(-1));
  const heads = txids.map((txid) => h("th", { scope: "col" }, txid % 5 === 0 || txid === data.first ? digits(txid) : ""));
  const last = ["consumed to", "current to", "not readable since"].map((words) => h("th", { scope: "col" }, words));
  const several = new Set(data.rows.map((each) => each.stream)).size > 1;
  const body = data.rows.map((row) => line(topology, row, txids, by, here, several));
  const there = new Set(data.cells.map((each) => each.status));
  const shapes = Object.entries(SHAPES).filter(([name]) => there.has(name)).map(([, [sign, look, word, more = ""]]) => [look, sign, word + more]);
  return [h("div", { class: "scrolls grid", role: "group", label: "Partitions by txid; arrows move, Enter opens", on: around(GROUP) },
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "name" }, "partition"), heads, last)), h("tbody", {}, body))), legend(shapes)];
}

function line(topology, row, txids, by, here, several) {
  let hole = null;
  const drawn = txids.map((txid) => {
    const each = by.get(keyOf(row.stream, row.partition, txid));
    const fills = each?.status === "read" ? hole : null;
    const joined = hole !== null;
    if (each) hole = each.status === "unreadable" ? (hole ?? txid) : null;
    return h("td", { key: txid, class: joined ? (fills ? "joined end" : "joined") : "" }, each && square(topology, each, here, fills));
  });
  const name = several ? `${row.stream}: ${row.partition}` : row.partition;
  return h("tr", { key: `${row.stream}:${row.partition}` }, h("th", { scope: "row", class: "name", title: name }, bdi(name)), drawn,
    h("td", { class: "number" }, bdi(row.consumed_to ?? "–")),
    h("td", {}, row.current_to_txid == null ? "–" : [txidLink(topology, row.current_to_txid), row.current_to && [", ", since(row.current_to)]]),
    h("td", {}, row.unreadable_since_txid == null ? "" : txidLink(topology, row.unreadable_since_txid)));
}

function square(topology, each, here, fills) {
  const [shape, look, word] = SHAPES[each.status] ?? ["?", "planned", each.status];
  const range = each.start != null && each.end != null ? `${each.start} to ${each.end}` : "";
  const words = [`${clip(each.partition, 60)}, txid ${each.txid}: ${word}`, each.records != null && many(each.records, "record"), range,
    fills && `fills what txid ${fills} could not read`, each.reason && clip(each.reason)].filter(Boolean).join(", ");
  const click = () => go(href(topology, "batch", { txid: each.txid }));
  return cell(keyOf(each.stream, each.partition, each.txid), here, look, shape, words, click);
}

function keyOf(stream, partition, txid) {
  return JSON.stringify([stream, partition, txid]);
}
