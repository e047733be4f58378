"""`topology_dag`: the DAG of a topology. Each run is one transaction."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, Param, chain

from txbatch.core.errors import InvalidArgument, JobNotFound
from txbatch.core.text import LENGTH_MAX
from txbatch.launch.job_file import Job, load_job
from txbatch.orchestration import grid
from txbatch.orchestration.doc import CHOOSES_DATA, describe, page
from txbatch.orchestration.form import fields
from txbatch.orchestration.operators import (
    CommitOperator,
    EmitBatchOperator,
    InitializeTransactionOperator,
    SuccessOperator,
)
from txbatch.orchestration.schedules import FIRST_TASK, check_schedule
from txbatch.orchestration.waiting import (
    ASK_AGAIN_PARAM,
    LEDGER_TIMEOUT,
    LEDGER_TIMEOUT_PARAM,
    LIMIT,
    READY_TIMEOUT_PARAM,
    TURN_TIMEOUT_PARAM,
)

_MINUTE = timedelta(minutes=1)
_EXAMPLES = {"start_date": "datetime(2026, 1, 1, tzinfo=UTC), the start of the first interval"}
RETRIES = {"retries": 3, "retry_delay": timedelta(seconds=5)}
TAG = "txbatch"
WAITS_SECTION = "Waits"
# Default arguments of a DAG that verifies, rebuilds or folds.
BESIDE = {"catchup": False, "max_active_runs": 1, "tags": [TAG]}
TURN_TIMEOUT = timedelta(hours=6)
READY_TIMEOUT = timedelta(hours=6)
ASK_AGAIN = timedelta(minutes=1)


def topology_dag(
    job: str,
    *,
    schedule: Any = None,
    intervals: Any = None,
    reaches_back: timedelta | None = None,
    turn_timeout: timedelta = TURN_TIMEOUT,
    ready_timeout: timedelta = READY_TIMEOUT,
    ask_again: timedelta = ASK_AGAIN,
    ledger_timeout: timedelta = LEDGER_TIMEOUT,
    coalesce: bool = False,
    emit_batch: dict[str, Any] | None = None,
    default_args: dict[str, Any] | None = None,
    **dag_arguments: Any,
) -> DAG:
    """Return the DAG `initialize_transaction` → `emit_batch` → `commit` → `success` of a job file.

    `job` is relative to the parent of the DAGs folder. The dag_id is the topology's name. `intervals` is a timetable that says
    which intervals there are, if the runs of `schedule` have none: `schedule=[Asset("orders")]` starts a run for each event,
    and the run counts each interval that is over and not counted, from the oldest counted interval on; with `reaches_back`,
    only the newest interval may begin longer before the run. `turn_timeout` is the longest
    wait for the batches before the run's own (R6). `ready_timeout` is the longest wait for a source that reads by time and
    is not ready; the source is asked every `ask_again` (R4). `ledger_timeout` is the longest wait of a task for the ledger,
    or for a whole source, that does not answer. The form of a run can change all four. With `coalesce`, one
    Spark application, in client mode, emits all planned batches one after the other, instead of one application each in
    parallel: for many small batches, if the topology's `max_pending` allows several planned batches. `emit_batch` holds
    further arguments of SparkSubmitOperator (conn_id, conf, executor_memory, pool, ...), also for `commit`, because
    `commit` emits batches planned anew or adopted. `dag_arguments` are arguments of DAG (start_date, end_date, catchup,
    params, tags, ...). The tag `txbatch` is added to your own tags.

    Raise DefinitionError, shown by Airflow as an import error of the DAG file.
    """
    _refuse_placeholders(dag_arguments)
    # The caller must be the DAG file, with no function in between: Airflow gives its path nowhere while parsing, and an argument
    # with the path would be one more line to get wrong in each DAG file.
    dag_file = Path(sys._getframe(1).f_globals["__file__"])
    loaded = load_job(job, root_of(job, dag_file))
    name = loaded.topology.name
    arguments = {"catchup": False, **dag_arguments}
    own = dict(dag_arguments.get("params") or {})
    choosing = {name: _choosing(name) for name in loaded.topology.parameters}
    arguments["params"] = fields.params(
        loaded.topology, own, choosing, _waits(loaded, turn_timeout, ready_timeout, ask_again, ledger_timeout)
    )
    told: dict[str, Any] = {"coalesce": coalesce, "schedule": schedule, "intervals": intervals, "own": own}
    arguments.setdefault("doc_md", page(loaded, arguments["params"], **told))
    arguments.setdefault("description", describe(loaded))
    arguments["tags"] = sorted({TAG, *(arguments.get("tags") or ())})
    ours: dict[str, Any] = {"job": loaded, "own": frozenset(own)}
    with DAG(name, schedule=schedule, default_args={**RETRIES, **(default_args or {})}, **arguments) as dag:
        if intervals is not None:
            grid.check(loaded.topology, dag, intervals, reaches_back)
        elif reaches_back is not None:
            raise InvalidArgument(
                f"topology_dag: reaches_back={reaches_back!r} is for runs by intervals=; leave it out"
            )
        elif loaded.topology.by_interval:
            check_schedule(name, dag)
        first = InitializeTransactionOperator(task_id=FIRST_TASK, **ours)
        first.intervals, first.reaches_back = intervals, reaches_back
        chain(
            first,
            EmitBatchOperator(task_id="emit_batch", **ours, coalesce=coalesce, **(emit_batch or {})),
            CommitOperator(task_id="commit", **ours, **(emit_batch or {})),
            SuccessOperator(task_id="success", **ours, outlets=[topology_asset(name)]),
        )
    return dag


def _refuse_placeholders(arguments: dict[str, Any]) -> None:
    """Raise DefinitionError for an argument copied as `...`: Airflow's own error names neither the argument nor the line."""
    for name, value in arguments.items():
        if value is ...:
            raise InvalidArgument(
                f"topology_dag: {name}=... stands for a value; write one: {_EXAMPLES.get(name, f'the value of {name}')}"
            )


def topology_asset(topology: str) -> Asset:
    """Return the asset of a topology. Each event announces a committed batch: `extra` has `topology` and `txid`.

    An event is a hint, and may come twice or together with other events: work once per txid.
    """
    return Asset(name=topology, uri=f"txbatch://{topology}", group="txbatch")  # the plugin's page asks for the group


def _waits(
    job: Job, turn_timeout: timedelta, ready_timeout: timedelta, ask_again: timedelta, ledger_timeout: timedelta
) -> dict[str, Param]:
    """Return the parameters for the longest waits of a run. They choose no data."""
    turn = "How long this run may wait for the batches before its own, before it fails. It chooses no data."
    away = (
        "How long a task of this run may wait for the ledger, or for a whole source, that does not answer, before it fails. "
        "It chooses no data."
    )
    params = {
        LEDGER_TIMEOUT_PARAM: _positive(
            ledger_timeout / _MINUTE, LIMIT / _MINUTE, "Minutes to wait for the ledger", away
        ),
        TURN_TIMEOUT_PARAM: _positive(turn_timeout / _MINUTE, LIMIT / _MINUTE, "Minutes to wait for its turn", turn),
    }
    if not job.topology.by_interval:
        return params
    ready = "How long this run may wait for a source that is not ready for its interval, before it fails. It chooses no data."
    again = "How often such a source is asked. It chooses no data."
    return params | {
        READY_TIMEOUT_PARAM: _positive(
            ready_timeout / _MINUTE, LIMIT / _MINUTE, "Minutes to wait for the source", ready
        ),
        ASK_AGAIN_PARAM: _positive(
            ask_again.total_seconds(), LIMIT.total_seconds(), "Seconds until the source is asked again", again
        ),
    }


def _choosing(name: str) -> Param:
    """Return the default parameter for a name declared by a spout: a text, or None."""
    return Param(None, type=["null", "string"], maxLength=LENGTH_MAX, title=name, description=CHOOSES_DATA)


def _positive(default: float, maximum: float, title: str, description: str) -> Param:
    if not 0 < default <= maximum:
        raise InvalidArgument(f"{title}: {default:g} is not more than 0 and at most {maximum:g}; mend the DAG file")
    return Param(
        default,
        type="number",
        exclusiveMinimum=0,
        maximum=maximum,
        title=title,
        description=description,
        section=WAITS_SECTION,
    )


def root_of(job: str, dag_file: Path) -> Path:
    """Return the nearest folder above the DAG file from which the job's path leads to a file."""
    for folder in dag_file.resolve().parents:
        if (folder / job).is_file():
            return folder
    raise JobNotFound(
        f"no job file {job!r} beside or above {dag_file.name}; write it relative to the DAGs folder's parent"
    )
