// A plan: what counting batches again would change, as a run left it behind.

import { changesTable } from "./changes.js";
import { bdi, h, p, region } from "./dom.js";
import { digits, many } from "./words.js";

/** Return the plan in words and tables; a plan of another form as its text. `states` tell the order of columns. */
export function planned(plan, states) {
  if (!Array.isArray(plan)) return h("pre", region("The plan"), typeof plan === "string" ? plan : JSON.stringify(plan, null, 1));
  return plan.map((row) => [
    p("", `txid ${digits(row.replaces)}, at position ${digits(row.position)}, would be counted again: `,
      h("b", {}, many(row.records_after, "record")), `, ${digits(row.records_before ?? 0)} before.`),
    (row.states ?? []).map((each) => ofState(each, states.find(({ state }) => state === each.state))),
  ]);
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
