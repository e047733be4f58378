"""Sessions with every aggregate: whatever befalls the batches, the same as of one pass over all records (R27).

What befalls them is that of `test_any_batches`: retries, replays, days out of order, partitions that are away; on the twin
in memory and on PostgreSQL, in every kind of state. `MODEL_BATCHES=1000` tries so many histories of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import pytest
from every_aggregate import FIELDS, VALUES, aggregates, every_aggregate, shown
from model import test_any_batches as any_batches
from model.on_postgres import on_postgres
from model.test_any_batches import (
    SEEDS,
    STATES,
    Batches,
    Befalls,
    Record,
    Submit,
    check_befell,
    out_of_order,
    outages,
    replays,
    retries,
)
from sqlalchemy import Engine

from txbatch import Topology, session_window
from txbatch.core.batch.transaction import Batch
from txbatch.core.state.state import State, StateKind
from txbatch.core.windows.session_window import SessionWindow
from txbatch.direct import emitter
from txbatch.direct.emitter import partials_of
from txbatch.testing import local as kit
from txbatch.testing import submit_topology

BEFALLS = [retries, replays, out_of_order, outages]
BEGIN, GAP = datetime(2026, 11, 24, tzinfo=UTC), timedelta(seconds=10)


def topology_of(spout: Any, state: State) -> Topology:
    """All aggregates that PostgreSQL merges."""
    weak = {"guarantee": "at_least_once"} if state.kind is StateKind.NON_TRANSACTIONAL else {}
    topology = Topology(state.name)
    grouped = topology.new_stream("in", spout).group_by(session_window("seen", "10 seconds"), "k")
    grouped.persistent_aggregate(state, **weak, **aggregates())
    return topology


def some_batch(random: Random, *more: Any) -> list[Record]:
    """A few records of two minutes, or none."""
    return [
        (BEGIN + timedelta(seconds=random.randrange(120)), *map(random.choice, VALUES), *more)
        for _ in range(random.randint(0, 9))
    ]


@pytest.fixture(autouse=True)
def of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What befalls batches befalls those of these."""
    monkeypatch.setattr(any_batches, "FIELDS", f"seen timestamp, {FIELDS}")
    monkeypatch.setattr(any_batches, "topology_of", topology_of)
    monkeypatch.setattr(any_batches, "some_batch", some_batch)


def at_once(batches: Batches) -> dict[Any, dict[str, Any]]:
    """By key and start, the values of each session of all records together."""
    plain, found = every_aggregate(values=aggregates()).aggregates[0], dict[Any, dict[str, Any]]()
    names = ["seen", *(field.split()[0] for field in FIELDS.split(", "))]
    records = [dict(zip(names, record, strict=False)) for batch in batches for record in batch]
    for key in {record["k"] for record in records}:
        for session in parted(sorted((each for each in records if each["k"] == key), key=lambda each: each["seen"])):
            ((_, together),) = partials_of(plain, session)
            values = any_batches._finished(plain, together)
            found[key, session[0]["seen"]] = {"session_end": session[-1]["seen"], **values}
    return found


def parted(records: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Cut records in order where more than the gap lies between two."""
    session: list[dict[str, Any]] = []
    for record in records:
        if session and record["seen"] - session[-1]["seen"] > GAP:
            yield session
            session = []
        session.append(record)
    yield session


def check(seed: int, state: str, befalls: Befalls, submit: Submit = submit_topology) -> list[Batch]:
    name = f"{befalls.__name__}_{seed}"
    local, batches = befalls(submit, STATES[state](name), Random(seed))
    found = {(row["k"], row["session_start"]): row for row in local.rows(name)}
    expected = at_once(batches)
    assert found.keys() == expected.keys(), f"seed {seed}: sessions, of the batches {batches}"
    for key, values in expected.items():
        for value, of_all in values.items():
            assert shown(found[key][value]) == shown(of_all), f"seed {seed}: {value} of {key}, of the batches {batches}"
    return local.batches()


@pytest.mark.rule("R9", "R17", "R21", "R27")
@pytest.mark.parametrize("befalls", BEFALLS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("state", STATES)
def test_sessions_in_any_batches_are_those_of_one_pass(state: str, befalls: Befalls) -> None:
    check_befell(check(seed, state, befalls) for seed in range(SEEDS))


@pytest.mark.rule("R9", "R17", "R21", "R27")
@pytest.mark.parametrize("befalls", BEFALLS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("state", ["opaque", "transactional apart"])
def test_so_they_are_on_postgresql(
    engine: Engine, databases: Callable[[str], str], state: str, befalls: Befalls
) -> None:
    for seed in range(-(-SEEDS // 15)):
        check(seed, state, befalls, partial(on_postgres, engine, databases))


# ---- what it must find


def by_the_last(
    self: SessionWindow, pieces: Iterable[Any], of: Callable[[Any], Any], micros: Any = None
) -> Iterator[list[Any]]:
    """Sessions that reach as far as their last piece, though one before it reaches further."""
    found: list[Any] = []
    for piece in sorted(pieces, key=lambda each: of(each)[0]):
        if found and of(piece)[0] - of(found[-1])[1] > GAP:
            yield found
            found = []
        found.append(piece)
    if found:
        yield found


def less_than_the_gap(
    self: SessionWindow, pieces: Iterable[Any], of: Callable[[Any], Any], micros: Any = None
) -> Iterator[list[Any]]:
    """Sessions whose gap is not part of it."""
    shorter = SessionWindow(self.time, self.name, self.gap - 1)
    return TOGETHER(shorter, pieces, of)


def all_at_the_first(aggregate: Any, kept: Iterable[dict[str, Any]], late_before: Any = None) -> list[dict[str, Any]]:
    """The records of a batch, all of one session."""
    records = list(kept)
    return [record | {"session_start": min(each["seen"] for each in records)} for record in records]


TOGETHER = SessionWindow.together
WRONG: dict[str, tuple[Any, str, Any]] = {
    "pieces are shown as sessions": (kit, "join_pieces", lambda aggregate, rows: dict(rows)),
    "a batch is one session of a key": (emitter, "own_sessions", all_at_the_first),
    "a session reaches as far as its last piece": (SessionWindow, "together", by_the_last),
    "the gap is not part of a session": (SessionWindow, "together", less_than_the_gap),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead = WRONG[wrong]
    monkeypatch.setattr(where, name, instead)

    def some_histories() -> None:
        for seed in range(50):
            check(seed, "opaque", replays)

    with pytest.raises(AssertionError, match=r"^seed "):
        some_histories()
