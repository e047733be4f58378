"""A batch's own sessions: each record gets the first time of the record's session in the batch as the start (R27)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbatch.core.records.sql import spark_name
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.windows.session_window import SessionWindow
from txbatch.spark.within_batch import carried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LATE, _BEGUN = "_txbatch_late", "_txbatch_begun"


def own_sessions(
    frame: DataFrame, aggregate: PersistentAggregate, sessions: SessionWindow, late_before: int | None
) -> DataFrame:
    """Return the records with the start of the session in the batch in place of the record's own time.

    Late records, before `late_before`, share no session with other records; the start tells late sessions apart, too. A null
    time stays.
    """
    start = spark_name(sessions.name)
    names = [spark_name(name) for name in frame.columns]
    time, late = f"unix_micros({start})", "false" if late_before is None else f"unix_micros({start}) < {late_before}L"
    keys = [*carried(frame), *(spark_name(key.name) for key in aggregate.keys[:-1]), _LATE]
    over = f"OVER (PARTITION BY {', '.join(keys)} ORDER BY {start})"
    fresh = f"coalesce({time} - lag({time}) {over} > {sessions.gap}L, true)"
    marked = frame.selectExpr(*names, f"{late} as {_LATE}").selectExpr(
        *names, _LATE, f"if({fresh}, {start}, null) as {_BEGUN}"
    )
    # The last record that began a session; of equal times all are of one frame, in which only the first began it.
    return marked.selectExpr(*(f"max({_BEGUN}) {over} as {name}" if name == start else name for name in names))
