// How a batch looks: a shape, a word and a class for each state.

export const LOOKS = {
  committed: ["✓", "committed"],
  emitted: ["◷", "emitted"],
  planned: ["…", "planned"],
  failing: ["!", "failing"],
  aborted: ["×", "aborted"],
  skip: ["⊘", "given up"],
  restate: ["↺", "counted in place of another"],
  replaced: ["↻", "counted again"],
  hole: ["", "not counted"],
};

// Return the looks that are there, as [look, shape, words].
export function legendOf(there) {
  return Object.keys(LOOKS).filter((name) => there.includes(name)).map((name) => [name, ...LOOKS[name]]);
}

export function look(batch) {
  if (batch.status === "aborted") return "aborted";
  if (batch.status !== "committed") return batch.failing ? "failing" : batch.status;
  if (batch.kind === "skip") return "skip";
  if (batch.replaced_by != null) return "replaced";
  return batch.kind === "restate" ? "restate" : "committed";
}

export function state(batch) {
  const now = look(batch);
  if (now === "replaced") return `counted again by ${batch.replaced_by}`;
  if (now === "restate") return `counts in place of ${batch.position}`;
  if (batch.kind === "restate" && batch.status !== "aborted") return `${now}, to count ${batch.position} again`;
  return LOOKS[now]?.[1] ?? now;
}

export function shape(name) {
  return LOOKS[name]?.[0] ?? "?";
}
