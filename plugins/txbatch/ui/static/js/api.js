// Requests: to the pages' own routes, and to Airflow's REST with the session of whoever looks.

// A request that failed, with the status and the words of the answer; 0: no answer that can be read.
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }

  // All connections of the pages are taken: the page asks again.
  get busy() {
    return this.status === 503 && /\bbusy\b/.test(this.message);
  }
}

// A browser takes a name of dots alone for a step between folders.
const STEP = /(^|\/)\.\.?([/?]|$)/;
const WORDS = { 401: "Your session is over.", 403: "You may not do this.", 404: "There is no such thing." };

// Return the answer of a route below `api/`. Raise Refused.
export function get(path, params) {
  const query = search(params);
  return ask("api/", query ? `${path}?${query}` : path);
}

// Return the answer of Airflow's REST. Raise Refused.
export function airflow(path, method = "GET", body = null) {
  const asked = { method, headers: { accept: "application/json" } };
  if (body !== null) {
    asked.headers["content-type"] = "application/json";
    asked.body = JSON.stringify(body);
  }
  return ask("../api/v2/", path, asked);
}

// Return parameters as a query: a list gives a parameter several times, null and a lone "" give none.
export function search(params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    for (const each of Array.isArray(value) ? value : value === "" ? [] : [value]) {
      if (each != null) query.append(name, each);
    }
  }
  return query.toString();
}

export const part = encodeURIComponent;

export function route(...parts) {
  return ["topologies", ...parts].map(part).join("/");
}

async function ask(base, path, options = {}) {
  if (STEP.test(path)) throw new Refused(404, WORDS[404]);
  let answer;
  try {
    answer = await fetch(base + path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    throw new Refused(0, "Airflow does not answer.");
  }
  const told = await answer.json().catch(() => undefined);
  if (!answer.ok) throw new Refused(answer.status, words(answer.status, told?.detail));
  if (told === undefined) throw new Refused(0, "The answer cannot be read: it is not JSON.");
  return told;
}

function words(status, detail) {
  if (typeof detail === "string" && detail) return detail;
  if (Array.isArray(detail)) return detail.map((each) => each.msg ?? String(each)).join("; ");
  return WORDS[status] ?? `Airflow answered ${status}.`;
}
