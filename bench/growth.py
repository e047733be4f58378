"""How cost grows: with the batch, with the keys that are asked for; with the state see `bench.commit`. And query streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench import batches
from bench.case import WITHOUT, Case
from bench.commit import MILLION
from bench.database import server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch.core.aggregates.aggregator import Sum
from txbatch.postgres.database.engine import connect
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.reports import Reports
from txbatch.settings import Settings

BIG = 10 * MILLION
ASKED = (1, 10, 100, 1000)
CALLS, CALL, KEYS_ASKED = 100, 100, 3


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
        reader = LedgerReader(connect(running.url_of("keys")))
        reader.query("counts", [[batches.KEY % 0]])  # the connection is there, as in a service
        contestants = {
            f"{count:,} keys": partial(_ask, reader, batches.key_numbers(count, BIG, 1.0)) for count in ASKED
        }
        figure = Figure("query of 1,000 keys in a state of 10 M, ms", "1,000 keys", None, 20, 5)
        results.add(section, interleaved(contestants), [figure])


def _ask(reader: LedgerReader, numbers: list[int], watch: Stopwatch) -> None:
    keys = [batches.KEY % number for number in numbers]
    with watch.timed():
        rows = reader.query("counts", [[key] for key in keys])
    assert len(rows) == len(keys)


def questions(section: str, results: Results) -> None:
    """Ten thousand questions to a query stream over a state with a million keys, a hundred a call; and as many keys."""
    with server() as running:
        batches.fill(running, "keys", MILLION, contributions=False)
        reports = Reports(Settings(running.home, running.url_of("keys"), "file:///nowhere"))
        topology = batches.topology(contributions=False)
        (counts,) = topology.aggregates
        asked = topology.new_query_stream("keys", "args string").flat_map(lambda r: r["args"].split(), "key string")
        found = asked.state_query(counts, "key").filter(lambda r: r["count"] is not None)
        found.aggregate(total=Sum("count"))
        calls = [batches.key_numbers(CALL * KEYS_ASKED, MILLION, 1.0, seed) for seed in range(CALLS)]
        keys = [[batches.KEY % number for number in numbers] for numbers in calls]
        together = [[" ".join(each[n : n + KEYS_ASKED]) for n in range(0, len(each), KEYS_ASKED)] for each in keys]
        reports.multi_get("counts", keys[0][:1])  # the connection is there, as in a service
        contestants: dict[str, Contestant] = {
            "10,000 questions": partial(_answered, lambda each: reports.ask(topology, "keys", each), together),
            "10,000 keys": partial(_answered, partial(reports.multi_get, "counts"), [each[:CALL] for each in keys]),
        }
        figures = [
            Figure("30,000 state queries by questions of three, 100 a call, s", "10,000 questions", None, 3, 1, unit=1),
            Figure("10,000 state queries by multi_get, 100 a call, s", "10,000 keys", None, 1, 0.2, unit=1),
        ]
        results.add(section, interleaved(contestants), figures)


def _answered(ask: Callable[[list[str]], Sequence[Any]], calls: list[list[str]], watch: Stopwatch) -> None:
    with watch.timed():
        answers = [ask(each) for each in calls]
    assert all(len(answer) == CALL and None not in answer for answer in answers)


SECTIONS = {"growth with the batch": batch, "query": query, "query streams": questions}
