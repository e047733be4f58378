// The states of a topology, and what can be asked of each.

import { bdi, h, p } from "./dom.js";
import { digits } from "./words.js";

// Return the state of this name, else the first; undefined if there is none.
export function chosen(one, name) {
  return one.states.find((each) => each.state === name) ?? one.states[0];
}

// Return the notice that a state of this name is no more, if it is not there.
export function lost(one, name) {
  if (!name || one.states.some((each) => each.state === name)) return null;
  return h("p", { class: "ill", role: "status" }, "This topology has no state ", bdi(name), ", or has it no more.");
}

export function stateField(one, state, choose) {
  const option = (each) => h("option", { value: each.state, selected: each === state, key: each.state }, each.state);
  const change = (event) => choose(event.target.value);
  return h("label", { class: "field" }, h("span", {}, "state"), h("select", { name: "state", on: { change } }, one.states.map(option)));
}

// Return why the past of a state cannot be asked here.
export function past(state) {
  if (state.apart) return p("empty", "Kept in another database (", bdi(state.apart), "): no past.");
  if (state.merged_by_job) return p("empty", "The job's own Python merges this state: ", h("code", {}, "txbatch as-of"), " in the project's folder tells its past.");
  return p("empty", "This state keeps no contributions: no past.");
}

// Return which txids retention has folded; nothing if none are.
export function folded(state) {
  return state.horizon > 0 ? p("quiet", `Retention has folded txids 1 to ${digits(state.horizon)} into one row per key.`) : null;
}

export function noValues(one) {
  const words = one.show_values ? "This topology has no state yet." : "Values are not shown here: the setting pages_show_values is off. SQL has them.";
  return p("empty", words);
}
