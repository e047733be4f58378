"""The commit: rows of a batch into a state, against the floor of what PostgreSQL must do and against other ways."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from bench import batches, rivals
from bench.case import WITH, WITHOUT, Case
from bench.database import server
from bench.measure import Contestant, Figure, interleaved
from bench.results import Results

MILLION = 1_000_000


def measure(
    section: str, results: Results, *, rows: int, keys: int, updates: float, row_wise: bool = False, fewer: int = 0
) -> None:
    """One case, all contestants; with `fewer`, also the same batch into a state of so many keys."""
    with server() as running, rivals.warm_spark() if row_wise else nullcontext() as spark:
        case = Case(running, keys, rows, updates)
        for kind in (WITH, WITHOUT):
            batches.fill(running, case.template(kind), keys, contributions=kind == WITH)
        contestants: dict[str, Contestant] = {
            "composed floor": case.floor,
            "txbatch": partial(case.txbatch, WITHOUT),
            "txbatch with contributions": partial(case.txbatch, WITH),
            "plain upsert": case.plain,
        }
        if spark is not None:
            contestants |= {
                "execute_values": case.execute_values,
                "SQLAlchemy bulk": case.sqlalchemy,
                "Spark JDBC + merge": partial(rivals.jdbc_merge, case, case.template(WITHOUT), spark),
                "dlt merge": partial(rivals.dlt_merge, case),
            }
        if fewer:
            small = Case(running, fewer, rows, updates)
            batches.fill(running, small.template(WITHOUT), fewer, contributions=False)
            contestants["txbatch, a tenth of the state"] = partial(small.txbatch, WITHOUT)
        results.add(section, interleaved(contestants), FIGURES[section], rows=rows, keys=keys, updates=updates)


def _floor(what: str, at_least: float, aim: float, measured: str = "txbatch") -> Figure:
    return Figure(f"commit {what} / composed floor", measured, "composed floor", at_least, aim)


FIGURES = {
    "commit 100 k": [
        _floor("100 k rows", 2.0, 1.6),
        Figure("execute_values / commit of 100 k rows", "execute_values", "txbatch", 2, 3, higher=True),
        Figure("SQLAlchemy bulk / commit of 100 k rows", "SQLAlchemy bulk", "txbatch", 3, 5, higher=True),
        Figure("Spark JDBC + merge / commit of 100 k rows", "Spark JDBC + merge", "txbatch", higher=True),
        Figure("dlt merge / commit of 100 k rows", "dlt merge", "txbatch", higher=True),
    ],
    "commit 1 M": [
        _floor("1 M rows", 1.15, 1.0),
        _floor("1 M rows with contributions", 1.3, 1.1, "txbatch with contributions"),
        Figure(
            "exactly-once with contributions / plain upsert, 1 M rows",
            "txbatch with contributions",
            "plain upsert",
            1.25,
            1.1,
        ),
    ],
    "commit 1 M, all updates": [_floor("1 M rows, all updates", 1.15, 1.0)],
    "commit 1 M into 10 M": [
        Figure("10 times the state, the same batch of 1 M rows", "txbatch", "txbatch, a tenth of the state", 1.2, 1.1)
    ],
}
SECTIONS = {
    "commit 100 k": partial(measure, rows=100_000, keys=MILLION, updates=0.5, row_wise=True),
    "commit 1 M": partial(measure, rows=MILLION, keys=MILLION, updates=0.5),
    "commit 1 M, all updates": partial(measure, rows=MILLION, keys=MILLION, updates=1.0),
    "commit 1 M into 10 M": partial(measure, rows=MILLION, keys=10 * MILLION, updates=0.5, fewer=MILLION),
}
