"""What it costs that a commit writes what it changes into a table, as the server returns it, and by two looks at each key."""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

from bench import batches
from bench.case import WITH, Case
from bench.commit import MILLION
from bench.database import server
from bench.measure import Figure, Stopwatch, interleaved
from bench.results import Results

ROWS = 100_000
TABLE = "audit.changes"


def measure(section: str, results: Results) -> None:
    """The same batch, half of whose keys are new, into the same million keys."""
    with server() as running:
        case = Case(running, MILLION, ROWS, 0.5)
        batches.fill(running, case.template(WITH), MILLION, contributions=True)
        contestants = {
            "commit": partial(case.txbatch, WITH),
            "new values": partial(case.txbatch, WITH, new_values=TABLE),
            "new values, two looks": partial(_two_looks, case),
        }
        results.add(section, interleaved(contestants), FIGURES, rows=ROWS, keys=MILLION)


def _two_looks(case: Case, watch: Stopwatch) -> None:
    with patch("txbatch.postgres.state.writer.RETURNING_VERSION_MIN", 10**9):
        case.txbatch(WITH, watch, new_values=TABLE)


FIGURES = [
    Figure("commit of 100 k rows with new values / without", "new values", "commit", 1.15, 1.1),
    Figure("commit of 100 k rows with new values, before PostgreSQL 18 / without", "new values, two looks", "commit"),
]
SECTIONS = {"new values": measure}
