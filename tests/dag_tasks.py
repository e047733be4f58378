"""Run the tasks of a DAG one after the other in this process, without a running Airflow; its arguments name the DAGs."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Mapping
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
    of_run: Mapping[str, Any] | None = None,
    **params: Any,
) -> dict[str, Any]:
    """What the tasks of a run with these params left behind and said; the first that does not succeed is the last.

    `of_run` is what else Airflow tells of the run, such as its dates.
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
        "dag_run": SimpleNamespace(dag_id=dag.dag_id, run_id=run_id, triggering_user_name="anna", **(of_run or {})),
        "params": {name: param.value for name, param in dag.params.items()} | params,
        "outlet_events": {asset: SimpleNamespace(extra=extra) for asset in dag.get_task("success").outlets},
    }
    for task in tasks:
        try:
            left[task] = dag.get_task(task).execute(context)
        except TaskDeferred as error:
            told.append(f"TaskDeferred: {error}")
            break
        except (AirflowSkipException, AirflowFailException, TxbatchError) as error:
            told.append(str(error))
            break
    return {"note": left.get("txbatch"), "extra": extra, "told": told, "emit_batch": left.get("emit_batch")}


def form(dag: Any) -> dict[str, Any]:
    """What the form of its runs and its page say."""
    return {"params": {name: param.description for name, param in dag.params.items()}, "page": dag.doc_md}
