// A turn: one request, which tells the topology's state and the newest batches of the window.

import { get, Refused } from "./api.js";
import { WINDOW } from "./overview.js";

const BUSY_SECONDS = 3;
const REST_SECONDS = 15;
// What a topology can be called; an address may name anything.
const NAME = /^(?!-|\.+$)[\w.-]+$/;

// Return `{one, batches, next}` for an address. Raise Refused.
export async function askTurn({ topology, before, show }) {
  if (!topology) return { one: null, batches: null, next: null };
  if (!NAME.test(topology)) throw new Refused(404, "No topology has such a name.");
  const path = `topologies/${topology}`;
  const { one, batches } = await get(`${path}/turn`, { limit: WINDOW, before, failed: show === "failed" ? "true" : null });
  return { one, batches: batches.batches, next: batches.next };
}

// Return texts that differ if what a page shows may have changed. How long a wait lasts is no change.
export function fingerprint({ one, batches }) {
  if (!one) return { one: "", batches: "" };
  const waiting = one.waiting.map(({ seconds: _, ...each }) => each);
  return { one: JSON.stringify([one.topology, one.failing, waiting, one.states, one.paused]), batches: JSON.stringify(batches) };
}

export function differs(before, now) {
  return ["one", "batches"].some((each) => before?.[each] != null && before[each] !== now[each]);
}

// Return the seconds until the next turn: few while something runs, waits, fails or is busy.
export function pause({ one, error }) {
  if (error?.busy) return BUSY_SECONDS;
  if (error || !one) return REST_SECONDS;
  const { in_flight: flying, waiting, failing } = one.topology;
  return flying || waiting || failing ? BUSY_SECONDS : REST_SECONDS;
}
