// The page of a run: its batch, or its batches where it was a catch-up.

import { route } from "./api.js";
import { batch } from "./batch.js";
import { bdi, p } from "./dom.js";
import { href } from "./address.js";
import { inside, shown } from "./pieces.js";
import { list } from "./transactions.js";

export function run(view) {
  const { store, topology, address } = view;
  const path = route(topology, "runs", address.run_id);
  return shown(store.need("run", path), ({ batches }) => {
    if (batches.length === 1) return batch({ ...view, address: { ...address, txid: String(batches[0].txid) } });
    if (batches.length > 1) return [p("", `${batches.length} batches of run `, bdi(address.run_id)), list(view, batches)];
    return p("empty", "This run planned no batch: see its note. ", inside(href(topology, "transactions"), {}, "All transactions"));
  });
}
