"""How cost grows: with the batch, with the keys that are asked for; with the state see `bench.commit`."""

from __future__ import annotations

from functools import partial

from bench import batches
from bench.commit import MILLION, WITHOUT, Case
from bench.database import server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch.postgres.engine import connect
from txbatch.postgres.reader import Reader

BIG = 10 * MILLION
ASKED = (1, 10, 100, 1000)


def batch(section: str, results: Results) -> None:
    """Ten times the rows, into the same million keys."""
    with server() as running:
        cases = {f"{rows:,} rows": Case(running, MILLION, rows, 0.5) for rows in (10_000, 100_000, MILLION)}
        batches.fill(running, cases["10,000 rows"].template(WITHOUT), MILLION, contributions=False)
        contestants: dict[str, Contestant] = {name: partial(case.txbatch, WITHOUT) for name, case in cases.items()}
        figure = Figure("10 times the rows, 100 k to 1 M", "1,000,000 rows", "100,000 rows", 13, 11)
        results.add(section, interleaved(contestants), [figure])


def query(section: str, results: Results) -> None:
    """Reading keys of a state with ten million."""
    with server() as running:
        batches.fill(running, "keys", BIG, contributions=False)
        reader = Reader(connect(running.url_of("keys")))
        reader.query("counts", [[batches.KEY % 0]])  # the connection is there, as in a service
        contestants = {
            f"{count:,} keys": partial(_ask, reader, batches.key_numbers(count, BIG, 1.0)) for count in ASKED
        }
        figure = Figure("query of 1,000 keys in a state of 10 M, ms", "1,000 keys", None, 20, 5)
        results.add(section, interleaved(contestants), [figure])


def _ask(reader: Reader, numbers: list[int], watch: Stopwatch) -> None:
    keys = [batches.KEY % number for number in numbers]
    with watch.timed():
        rows = reader.query("counts", [[key] for key in keys])
    assert len(rows) == len(keys)


SECTIONS = {"growth with the batch": batch, "query": query}
