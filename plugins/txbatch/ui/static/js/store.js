// What was answered, by slot. A slot keeps its old content until a new answer is there.

import { get } from "./api.js";

// Keeps an answer for each slot, and tells when one has changed.
export class Store {
  constructor(changed) {
    this.changed = changed;
    this.slots = new Map();
  }

  // Return `{data, error, asking}` of a slot, and ask if the question is new or its answer stale.
  need(slot, path, params = {}) {
    const question = JSON.stringify([path, params]);
    let entry = this.slots.get(slot);
    if (entry?.question !== question) {
      entry = { question, path, params, data: entry?.data, of: entry?.of, error: null, asking: false, stale: true };
      this.slots.set(slot, entry);
    }
    if (entry.stale && !entry.asking) this.ask(entry);
    return entry;
  }

  peek(slot) {
    return this.slots.get(slot)?.data;
  }

  // Ask each slot again when it is needed next.
  refresh() {
    for (const entry of this.slots.values()) entry.stale = true;
  }

  // Ask again what failed for want of an answer.
  retry() {
    for (const entry of this.slots.values()) if (entry.error && entry.error.status % 500 < 100) entry.stale = true;
  }

  forget() {
    this.slots.clear();
  }

  async ask(entry) {
    entry.asking = true;
    entry.stale = false;
    try {
      entry.data = await get(entry.path, entry.params);
      entry.of = entry.question;
      entry.error = null;
    } catch (error) {
      entry.error = error;
      if (entry.of !== entry.question) entry.data = undefined;
    }
    entry.asking = false;
    this.changed(entry);
  }
}
