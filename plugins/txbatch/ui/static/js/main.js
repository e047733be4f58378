// The page: the address says what is shown, a turn asks, and what is new is drawn over the old.

import { batch } from "./batch.js";
import { changes } from "./changes.js";
import { completeness } from "./completeness.js";
import { h, listen, morph, p, plain } from "./dom.js";
import { header, PAGES } from "./header.js";
import { login, outside, read } from "./address.js";
import { Refused } from "./api.js";
import { button, refusal, refused } from "./pieces.js";
import { run } from "./run.js";
import { Store } from "./store.js";
import { followTheme } from "./theme.js";
import { topologies } from "./topologies.js";
import { transactions } from "./transactions.js";
import { Turns } from "./turns.js";
import { askTurn, differs, fingerprint, pause } from "./turn.js";
import { why } from "./why.js";
import { capital } from "./words.js";

const SHOWN = { transactions, completeness, batch, why, changes, run };
const REST_MS = 80;
const LOGIN_MS = 15000;
const SENT = "txbatch: sent to the login";

const root = document.getElementById("page");
const store = new Store((entry) => (entry.error?.status === 401 ? session(entry.error) : draw()));
const turns = new Turns(turn);
const now = { address: read(), one: null, batches: null, next: null, error: null, print: null };
let drawing = false;
let resting = null;

// Draw soon, once for all that changes until then.
function draw() {
  if (drawing) return;
  drawing = true;
  queueMicrotask(() => {
    drawing = false;
    morph(root, h("div", { id: "page" }, whole()));
  });
}

function whole() {
  const view = viewOf();
  document.title = ["txbatch", view.topology, view.topology && capital(view.page)].filter(Boolean).reverse().map(plain).join(" · ");
  if (!view.topology) return [trouble(), topologies(view)];
  if (!now.one) return now.error ? alone(view) : [header(view), h("main", {}, p("quiet asking", "asking…"))];
  return [header(view), h("main", { key: view.page }, trouble(), SHOWN[view.page](view))];
}

function viewOf() {
  const { address } = now;
  const page = PAGES.includes(address.page) ? address.page : address.run_id ? "run" : "transactions";
  return { ...now, page, topology: address.topology, store, later, soon: () => turns.now(), newest: () => now.batches, intervals: store.peek("intervals")?.intervals ?? now.batches };
}

function alone(view) {
  const { status } = now.error;
  // 422: no topology has such a name, or `before` is wrong.
  if (status === 404 || (status === 422 && !view.address.before)) return p("empty", "No topology of txbatch.");
  return [header(view), h("main", {}, trouble())];
}

function trouble() {
  if (!now.error) return null;
  if (now.error.busy) return refused(now.error);
  const { status } = now.error;
  const away = status === 503 && /does not answer/.test(now.error.message);
  const words = away ? "The ledger cannot be read. Runs that need it wait or are retried; Airflow itself goes on." : refusal(now.error);
  const act = status === 401 ? button("Log in", () => outside(login())) : button("Try again", () => turns.now());
  return h("div", { class: "trouble", role: "alert", key: "trouble" }, words, " ", act);
}

// Ask what has changed, and draw. Return the seconds until the next turn.
async function turn() {
  const { address } = now;
  try {
    const told = await askTurn(address);
    if (address !== now.address) return 0;
    const print = fingerprint(told);
    if (!address.topology || differs(now.print, print)) store.refresh();
    else store.retry();
    Object.assign(now, told, { error: null, print });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 401) session(error);
    now.error = error;
  }
  draw();
  return pause(now);
}

// Send the reader to the login, but not in a circle.
function session(error) {
  now.error = error;
  const last = Number(sessionStorage.getItem(SENT) ?? 0);
  draw();
  if (Date.now() - last < LOGIN_MS || document.querySelector("dialog[open]")) return;
  sessionStorage.setItem(SENT, String(Date.now()));
  if (window.parent === window) location.assign(login());
  else outside(login());
}

// Call something once nothing has been asked for a moment.
function later(then) {
  clearTimeout(resting);
  resting = setTimeout(then, REST_MS);
}

function went() {
  const before = now.address;
  now.address = read();
  if (before.topology !== now.address.topology) {
    store.forget();
    Object.assign(now, { one: null, batches: null, next: null, error: null, print: null });
  }
  if (batchesOf(before) !== batchesOf(now.address)) {
    // Other batches do not tell what has changed meanwhile.
    store.refresh();
    if (now.print) now.print = { ...now.print, batches: null };
  }
  draw();
  if (question(before) !== question(now.address)) turns.now();
}

function batchesOf({ topology, before, show }) {
  return JSON.stringify([topology, before, show]);
}

function question(address) {
  return JSON.stringify([batchesOf(address), address.page]);
}

followTheme();
listen(document.body);
window.addEventListener("went", went);
window.addEventListener("popstate", went);
draw();
turns.now();
