// What runs leave behind: the plan of counting again, and what verifying has found.

import { changesTable } from "./changes.js";
import { bdi, h, p, region } from "./dom.js";
import { table } from "./pieces.js";
import { digits, many } from "./words.js";

// Return the plan in words and tables. `states` tell the order of columns.
export function planned(plan, states) {
  if (!Array.isArray(plan)) return h("pre", region("The plan"), typeof plan === "string" ? plan : JSON.stringify(plan, null, 1));
  return plan.map((row) => [
    p("", `txid ${digits(row.replaces)}, at position ${digits(row.position)}, would be counted again: `,
      h("b", {}, many(row.records_after, "record")), `, ${digits(row.records_before ?? 0)} before.`),
    (row.states ?? []).map((each) => ofState(each, states.find(({ state }) => state === each.state))),
  ]);
}

const FOUND = [["", "what"], ["", "outcome"], ["", "keys"], ["", "reason"]];

// Return what differs: which batches and states, and which of their keys.
export function findings(found) {
  if (!Array.isArray(found) || found.length === 0) return null;
  return table("What differs", FOUND, found.map(({ what, outcome, keys, reason }) => [what, [what, outcome, bdi(keys), bdi(reason)], ""]));
}

function ofState({ state, keys_changed: changed, keys_touched: touched, examples = [] }, declared) {
  const words = p("", "state ", bdi(state), `: ${digits(changed)} of ${many(touched, "key")} would change`);
  if (examples.length === 0) return words;
  // On the way here objects lose the order of their names.
  const names = (of, columns = []) => {
    const found = new Set(examples.flatMap((each) => Object.keys(of(each) ?? {})));
    const ordered = columns.map(({ name }) => name).filter((name) => found.has(name));
    return [...new Set([...ordered, ...found])];
  };
  const [keys, values] = [names((each) => each.key, declared?.keys), names((each) => each.stored ?? each.recomputed, declared?.values)];
  const side = (of) => of && values.map((name) => of[name] ?? null);
  const rows = examples.map(({ key, stored, recomputed }) => ({ key: keys.map((name) => key[name] ?? null), before: side(stored), after: side(recomputed) }));
  const columns = (all) => all.map((name) => ({ name, type: "" }));
  return [words, changesTable(null, { state, keys: columns(keys), values: columns(values), rows, more: changed > rows.length })];
}
