"""`rebuild_dag`: a DAG to count all batches of a topology again by its job as it is now, and swap (R23)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param

from txbatch.core.text import WHY_MAX
from txbatch.launch.job_file import check_emission, load_job
from txbatch.orchestration import result
from txbatch.orchestration.airflow import open_steps
from txbatch.orchestration.dag import BESIDE, RETRIES, root_of
from txbatch.orchestration.failing.for_airflow import failing_as_airflow
from txbatch.orchestration.failing.outages import outages_waited_for
from txbatch.orchestration.operators import EmitBatchOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

_DOC = """All batches of **{topology}** are counted again by the present `{job}`, beside the present numbers. When the new numbers
have caught up, one transaction swaps old and new numbers.

Trigger the DAG with `why`. The same reason counts nothing a second time, while the job is the same. A task that is retried or
cleared continues. `txbatch rebuild {topology} --status` shows the progress, and `--cancel` ends the rebuild.
"""


def rebuild_dag(
    job: str,
    *,
    emit_batch: dict[str, Any] | None = None,
    default_args: dict[str, Any] | None = None,
    **dag_arguments: Any,
) -> DAG:
    """Return the DAG `<topology>.rebuild`. Its one task rebuilds the topology of a job file. Trigger the DAG by hand,
    with `why`.

    `job` is relative to the parent of the DAGs folder. `emit_batch` holds further arguments of SparkSubmitOperator, like in
    `topology_dag`; `dag_arguments` are arguments of DAG.

    Raise DefinitionError, shown by Airflow as an import error of the DAG file.
    """
    loaded = load_job(job, root_of(job, Path(sys._getframe(1).f_globals["__file__"])))
    arguments = {**BESIDE, "schedule": None, **dag_arguments}
    arguments.setdefault("doc_md", _DOC.format(topology=loaded.topology.name, job=loaded.name))
    arguments.setdefault("description", f"Count all batches of {loaded.topology.name} again, by the present job")
    why = Param(
        type="string",
        minLength=1,
        maxLength=WHY_MAX,
        title="Why",
        description="Why all of it is counted again; kept with the rebuild",
    )
    arguments["params"] = {"why": why, **(arguments.get("params") or {})}
    with DAG(f"{loaded.topology.name}.rebuild", default_args={**RETRIES, **(default_args or {})}, **arguments) as dag:
        RebuildOperator(task_id="rebuild", job=loaded, **(emit_batch or {}))
    return dag


class RebuildOperator(EmitBatchOperator):
    """Rebuilds a job's topology in one Spark application."""

    def execute(self, context: Context, event: Any = None, deadlines: dict[str, str] | None = None) -> Any:
        """Count all remaining batches, swap, note the result, and return the number of the rebuild."""
        from txbatch.wiring import open_rebuilder

        name = self.job.topology.name
        with (
            failing_as_airflow(context, topology=name, job=self.job.name),
            outages_waited_for(name, context, event, deadlines or {}),
        ):
            check_emission(self.job)
            by = getattr(context["dag_run"], "triggering_user_name", None)
            done = open_rebuilder(open_steps(self.job), self._application()).run(str(context["params"]["why"]), by)
        result.tell(context, str(done))
        return done.rebuild.number
