"""`gc_dag`: a DAG to fold old contributions of topologies (R22)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator

from txbatch.core.text import how_many
from txbatch.core.topology.topology import checked_topology_name
from txbatch.orchestration import result
from txbatch.orchestration.airflow import failing_as_airflow, resolve_settings
from txbatch.orchestration.dag import BESIDE, RETRIES
from txbatch.run import window_retention

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)
ALL = "txbatch.gc"
_DOC = """Contributions of {which} that are older than the policy in the job (`keep=Keep(days=90)`) are folded into one row per
key. The numbers stay. Folded batches have no history any more, and cannot be restated. If a state has `keep_windows="90 days"`,
older windows leave the state.

`txbatch gc --dry-run` shows the batches to be folded, and changes nothing.
"""


def gc_dag(
    topology: str | None = None,
    *,
    schedule: Any = "@daily",
    default_args: dict[str, Any] | None = None,
    **dag_arguments: Any,
) -> DAG:
    """Return the DAG `<topology>.gc`. Its one task folds a topology's past by policy. Without a topology, `txbatch.gc`
    folds all.

    Runs never overlap. `dag_arguments` are arguments of DAG. Raise DefinitionError for an invalid topology name.
    """
    name = ALL if topology is None else f"{checked_topology_name(topology)}.gc"
    arguments = {**BESIDE, **dag_arguments}
    arguments.setdefault("doc_md", _DOC.format(which="topologies" if topology is None else f"**{topology}**"))
    with DAG(name, schedule=schedule, default_args={**RETRIES, **(default_args or {})}, **arguments) as dag:
        # The caller must be the DAG file, see `topology_dag`.
        GcOperator(
            task_id="gc", topology=topology, folder=Path(sys._getframe(1).f_globals["__file__"]).resolve().parent
        )
    return dag


class GcOperator(BaseOperator):
    """Folds the past of one topology, or of all. If a try is killed, the next try goes on.

    If values merge by rules of a job's own, the job's file is looked for in a folder and all folders above.
    """

    def __init__(self, *, topology: str | None, folder: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topology, self.folder = topology, folder

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Fold, note the result, and return a row per topology, like `txbatch gc --json`."""
        with failing_as_airflow(context, topology=self.topology):
            rows = self._collected()
        for row in rows:
            log.info("%s", summary([row]))
        result.tell(context, summary(rows))
        return rows

    def _collected(self) -> list[dict[str, Any]]:
        from txbatch.wiring import open_collector

        collector = open_collector(resolve_settings(), self.folder)
        return list(collector.all()) if self.topology is None else [collector.one(self.topology)]


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the result in a line: `words: folded up to txid 90, 10 batches; visits: kept for ever`."""
    return "; ".join(map(_told, rows)) or "no topology has run yet"


def _told(row: Mapping[str, Any]) -> str:
    waits = f", waits for {row['waits_for']}" if row.get("waits_for") else ""
    if "versions" not in row:
        return f"{row['topology']}: kept {row['keep']}{waits}"
    left = "".join(f", {window_retention.describe_windows(each)}" for each in row.get("left", ()))
    gone = f", {how_many(row['quarantined'], 'record')} left the quarantine" if row["quarantined"] else ""
    return f"{row['topology']}: folded up to txid {row['horizon']}, {row['versions']:,} batches{gone}{waits}{left}"
