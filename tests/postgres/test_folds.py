"""What contributions amount to, in SQL and in Python: the same after any history of batches and restates (R17, R19, R22)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from support import LogSpout

from txbatch import Avg, Count, Max, OpaqueState, Topology
from txbatch.core.aggregates.merger import Merger
from txbatch.core.state.fold import Contribution, fold
from txbatch.core.state.update import Change
from txbatch.postgres.database.engine import execute
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.state.statements import statements_of

KEYS = "ab"
# Per txid: the position that it counts again, as an index into those before it (None: its own), and what it does to each key.
CHANGE = st.none() | st.tuples(st.integers(-9, 9), st.booleans(), st.booleans()).filter(lambda each: each[1] or each[2])
HISTORY = st.lists(st.tuples(st.none() | st.integers(0, 9), st.tuples(CHANGE, CHANGE)), max_size=6)
BASE = st.tuples(*[st.none() | st.integers(-9, 9)] * len(KEYS))
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def positions(history: list[Any]) -> dict[int, int]:
    """The position of each txid."""
    ordinary = [txid for txid, (again, _) in enumerate(history, 1) if again is None]
    found: dict[int, int] = {}
    for txid, (again, _) in enumerate(history, 1):
        before = [each for each in ordinary if each < txid]
        found[txid] = txid if again is None or not before else before[again % len(before)]
    return found


@pytest.mark.rule("R17", "R19")
@pytest.mark.parametrize("removable", [False, True])
@given(history=HISTORY, base=BASE)
@few
def test_the_fold_in_sql_is_that_of_the_core(engine: Engine, removable: bool, history: list[Any], base: Any) -> None:
    stream = Topology("t").new_stream("words", LogSpout({"a": 1}))
    remove = {"remove": "true"} if removable else {}
    aggregate: Any = (
        stream.each("1", "n bigint")
        .group_by("word")
        .persistent_aggregate(OpaqueState("s%"), count=Count(), most=Max("n"), mean=Avg("n"), **remove)
    )
    folds, of = Folds.of(aggregate), positions(history)
    replaced = {v: next((r for r in of if r > v and of[r] == of[v]), None) for v in of}
    contributions: dict[str, list[Contribution]] = {key: [] for key in KEYS}
    with engine.connect() as connection:
        execute(connection, statements_of(aggregate).create_state())
        execute(connection, statements_of(aggregate).create_contribution())
        execute(connection, f"CREATE TABLE contribution.all_of_it PARTITION OF {folds.contribution} DEFAULT")
        execute(connection, f"{folds.create_base()}; {folds.create_index()}")
        execute(connection, "INSERT INTO txbatch.topology (topology, job, by_interval) VALUES ('t', 'j', false)")
        for key, value in zip(KEYS, base, strict=True):
            if value is not None:
                execute(connection, f"INSERT INTO {folds.base} VALUES ('{key}', {value}, {value}, {value}, {value}, 0)")
        for txid, (_, changes) in enumerate(history, 1):
            execute(
                connection,
                "INSERT INTO txbatch.batch (topology, txid, position, kind, status, key, metadata, fence, token, committed_at, "
                f"committed_fence, lease_until, replaced_by) VALUES ('t', {txid}, {of[txid]}, "
                f"'{'ordinary' if of[txid] == txid else 'restate'}', 'committed', '{txid}', '{{}}', 1, 't', now(), 1, now(), "
                f"{replaced[txid] or 'NULL'})",
            )
            for key, change in zip(KEYS, changes, strict=True):
                if change is None:
                    continue
                value, removed, counted = (*change[:1], *(change[1:] if removable else (False, True)))
                marks = f", {removed}, {counted}" if removable else ""
                row = f"'{key}', {of[txid]}, {txid}, {value}, {value}, {value}, {value}{marks}"
                execute(connection, f"INSERT INTO {folds.contribution} VALUES ({row})")
                of_key = Contribution(of[txid], txid, Change((value,) * 4, removed, counted), replaced[txid])
                contributions[key].append(of_key)
        every = "(VALUES ('a'), ('b')) every (word)"
        for at in [None, *range(len(history) + 1)]:
            found = execute(connection, folds.now(every) if at is None else folds.at(str(at), every)).fetchall()
            combine = Merger(aggregate.merges)
            values = {
                key: fold(_four(value), contributions[key], combine, at) for key, value in zip(KEYS, base, strict=True)
            }
            assert {key: tuple(map(int, row)) for key, *row in found} == {
                k: v for k, v in values.items() if v is not None
            }
            if at is None:
                assert sorted(execute(connection, folds.now()).fetchall()) == sorted(found), "all keys, in one pass"
        connection.rollback()


def _four(value: int | None) -> tuple[int, ...] | None:
    return None if value is None else (value,) * 4
