// Runs of DAGs, by Airflow's own REST: trigger, look, read what a run left.

import { airflow, part } from "./api.js";

const PAUSE_MS = 3000;
const ENDED = new Set(["success", "failed"]);

// Trigger a run of a DAG. Return its id. Raise Refused with Airflow's words.
export async function trigger(dagId, conf) {
  const run = await airflow(`dags/${part(dagId)}/dagRuns`, "POST", { logical_date: null, conf });
  return run.dag_run_id;
}

export async function paused(dagId) {
  try {
    return (await airflow(`dags/${part(dagId)}`)).is_paused;
  } catch {
    return null;
  }
}

// Tell the state of a run until its end, and return the run; null once `wanted` is false. `away`: Airflow is silent.
export async function follow(dagId, runId, wanted, tell, away) {
  while (wanted()) {
    if (document.visibilityState !== "hidden") {
      const run = await airflow(`dags/${part(dagId)}/dagRuns/${part(runId)}`).catch((error) => {
        if (error.status % 500 >= 100) throw error;
        away(error);
      });
      if (run) tell(run);
      if (ENDED.has(run?.state)) return run;
    }
    await new Promise((done) => setTimeout(done, PAUSE_MS));
  }
  return null;
}

export async function leftBy(dagId, runId, name) {
  const run = `dags/${part(dagId)}/dagRuns/${part(runId)}/taskInstances`;
  const { xcom_entries: entries } = await airflow(`${run}/~/xcomEntries?xcom_key=${name}&limit=1`);
  if (entries.length === 0) return null;
  const { value } = await airflow(`${run}/${part(entries[0].task_id)}/xcomEntries/${name}`);
  return typeof value === "string" ? parsed(value) : value;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
