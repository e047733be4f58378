// The address of the page is its state. Links to Airflow leave the frame.

import { search } from "./api.js";

const NAMES = [
  ...["dag_id", "run_id", "asset", "page", "txid", "state", "before", "show", "from", "to"],
  ...["by", "search", "after", "first", "last", "as_of", "at"],
];
const OF_ASSETS = "txbatch://";

// Return what the address names: null for what is not there, and `key` as a list.
export function read() {
  const query = new URLSearchParams(location.search);
  const found = Object.fromEntries(NAMES.map((name) => [name, query.get(name)]));
  const asset = found.asset?.startsWith(OF_ASSETS) ? found.asset.slice(OF_ASSETS.length) : null;
  return { ...found, key: query.getAll("key"), topology: found.dag_id ?? asset };
}

export function href(topology, page, more = {}) {
  return `?${search({ dag_id: topology, page, ...more })}`;
}

export function go(address, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  window.dispatchEvent(new Event("went"));
}

// Handle a click on a link inside without a request; with a key held the browser does.
export function follow(event, link) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return true;
  event.preventDefault();
  go(link.getAttribute("href"));
  return false;
}

// Handle a click on a link to Airflow: the sandbox lets no link out, so the surrounding page follows.
export function leave(event, link) {
  if (window.parent === window) return true;
  event.preventDefault();
  outside(link.href, event.ctrlKey || event.metaKey);
  return false;
}

// Let the surrounding page go to an address.
export function outside(url, beside = false) {
  const place = window.parent.document;
  const link = place.createElement("a");
  link.href = url;
  if (beside) link.target = "_blank";
  place.body.append(link);
  link.click();
  link.remove();
}

export function ofAirflow(...parts) {
  return `../${parts.map(encodeURIComponent).join("/")}`;
}

// Return the address of Airflow's login, which leads back to where the reader is.
export function login() {
  return new URL(`../api/v2/auth/login?${search({ next: window.parent.location.href })}`, location.href).href;
}
