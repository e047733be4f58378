"""Run the tasks of a DAG one after the other in this process, without a running Airflow; its arguments name the DAGs."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from txbatch.core.errors import TxbatchError

TASKS = ("initialize_transaction", "emit_batch", "commit", "success")


def given() -> tuple[Any, Any, Path]:
    """The DAGs `words` and `days`, and the file that `days` reads."""
    words, days = (runpy.run_path(file)["dag"] for file in sys.argv[1:3])
    return words, days, Path(sys.argv[3])


def done(
    dag: Any,
    run_id: str,
    tasks: tuple[str, ...] = TASKS,
    noted: Callable[[str], None] = lambda note: None,
    resumed: Callable[[TaskDeferred], dict[str, Any]] | None = None,
    of_run: Mapping[str, Any] | None = None,
    interval: tuple[str, str] | None = None,
    **params: Any,
) -> dict[str, Any]:
    """What the tasks of a run with these params left behind and said; the first that does not succeed is the last.

    A task that waits is the last one, too, unless `resumed` returns by which arguments it goes on. `of_run` is what else
    Airflow tells of the run, such as its dates; `interval` is its data interval, in UTC.
    """

    def push(key: str, value: str) -> None:
        left[key] = value
        noted(value)

    left: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    told: list[str] = []
    ti = SimpleNamespace(
        try_number=1,
        xcom_push=push,
        xcom_pull=lambda task_ids: left.get(task_ids),
    )
    context = {
        "ti": ti,
        "dag": dag,
        "dag_run": SimpleNamespace(
            dag_id=dag.dag_id, run_id=run_id, triggering_user_name="anna", **_dates(interval), **(of_run or {})
        ),
        "params": {name: param.value for name, param in dag.params.items()} | params,
        "outlet_events": {asset: SimpleNamespace(extra=extra) for asset in dag.get_task("success").outlets},
    }
    again: dict[str, Any] = {}
    waiting = list(tasks)
    while waiting:
        task = waiting.pop(0)
        try:
            left[task] = dag.get_task(task).execute(context, **again)
            again = {}
        except TaskDeferred as error:
            if resumed is None:
                told.append(f"TaskDeferred: {error}")
                break
            again = resumed(error)
            waiting.insert(0, task)
        except (AirflowSkipException, AirflowFailException, TxbatchError) as error:
            told.append(str(error))
            break
    xcoms = {"emit_batch": left.get("emit_batch")} | {
        name: left[name] for name in ("plan", "txbatch_waited") if name in left
    }
    return {"note": left.get("txbatch"), "extra": extra, "told": told, **xcoms}


def _dates(interval: tuple[str, str] | None) -> dict[str, datetime]:
    moments = [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in interval or ()]
    return dict(zip(("data_interval_start", "data_interval_end"), moments, strict=False))


def form(dag: Any) -> dict[str, Any]:
    """What the form of its runs and its page say."""
    return {"params": {name: param.description for name, param in dag.params.items()}, "page": dag.doc_md}
