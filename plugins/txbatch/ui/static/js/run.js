// The page of a run: its batch, or its batches where it was a catch-up.

import { batch } from "./batch.js";
import { h } from "./dom.js";
import { href } from "./address.js";
import { inside, shown } from "./pieces.js";
import { list } from "./transactions.js";

/** Return the page. */
export function run(view) {
  const { store, topology, address } = view;
  const path = `topologies/${encodeURIComponent(topology)}/runs/${encodeURIComponent(address.run_id)}`;
  return shown(store.need("run", path), ({ batches }) => {
    if (batches.length === 1) return batch({ ...view, address: { ...address, txid: String(batches[0].txid) } });
    if (batches.length > 1) return [h("p", {}, `${batches.length} batches of run `, h("bdi", {}, address.run_id)), list(view, batches)];
    return h("p", { class: "empty" }, "This run has no batch. ", inside(href(topology, "transactions"), {}, "All transactions"));
  });
}
