"""Every aggregate, in every kind of state: whatever befalls the batches, the same as of all records at once (R9, R17, R18).

A case is a kind of state and what befalls: retries, replays, keys that are removed, intervals out of order, partitions that are
away. Each has its records in random batches, of which some die on the way, by the testing kit, on the twin in memory and on
PostgreSQL. Three histories of each, 15 in `make test-all`, `MODEL_BATCHES=1000` as many; a failure names its seed, the key
and the aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import pytest
from every_aggregate import FIELDS, KEYS, VALUES, aggregates, every_aggregate, own_aggregates, shown
from model.on_postgres import on_postgres
from sizes import some_of
from sqlalchemy import Engine

from txbatch import Interval, NonTransactionalState, OpaqueState, Topology, TransactionalState
from txbatch.core.aggregates.merge import Merge, Partial
from txbatch.core.batch.plan import StreamPlan
from txbatch.core.batch.transaction import Batch, BatchStatus
from txbatch.core.errors import PartitionUnreadable, TerminalError
from txbatch.core.state import update
from txbatch.core.state.state import State, StateKind
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.stream import Stream
from txbatch.direct import emitter
from txbatch.direct.emitter import partials_of
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.tables import Tables
from txbatch.testing import FeederBatchSpout, FeederPartitionedSpout, LocalTopology, submit_topology
from txbatch.testing.local import POINTS

SEEDS = some_of(3, 15, "MODEL_BATCHES")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 5
BATCH_MAX = 4
PARTITIONS = ("0", "1", "2")
STATES: Mapping[str, Callable[[str], State]] = {
    "opaque": OpaqueState,
    "transactional": TransactionalState,
    "non_transactional": NonTransactionalState,
    "opaque apart": partial(OpaqueState, database="warehouse"),
    "transactional apart": partial(TransactionalState, database="warehouse"),
}
Record = tuple[Any, ...]
# What each position has counted.
Batches = Sequence[Sequence[Record]]
Submit = Callable[[Topology], LocalTopology]
Befalls = Callable[[Submit, State, Random], tuple[LocalTopology, Batches]]


def removes(record: Mapping[str, Any]) -> bool:
    """One in five of them."""
    return bool(record["n"] in (-3, 3))


def topology_of(spout: Any, state: State, **more: Any) -> Topology:
    """All aggregates in one state, which counts at least once where it can do no better."""
    weak = {"guarantee": "at_least_once"} if state.kind is StateKind.NON_TRANSACTIONAL else {}
    values = {**aggregates(), **own_aggregates()}
    return every_aggregate(spout, state, values, name=state.name, **weak, **more)


def some_batch(random: Random, *more: Any) -> list[Record]:
    """A few records, or none."""
    return [(*map(random.choice, VALUES), *more) for _ in range(random.randint(0, BATCH_MAX))]


def run(local: LocalTopology, random: Random, **more: Any) -> None:
    """Run until nothing is left, and die up to twice on the way, if it comes there."""
    for _ in range(random.choice((0, 1, 2))):
        with suppress(TerminalError):
            local.run(dies_at=random.choice(POINTS), **more)
        if random.randint(0, 1):
            local.lose_staged_files()
    local.run(**more)


# ---- what befalls: each returns what was run, and what each position has counted


def retries(submit: Submit, state: State, random: Random) -> tuple[LocalTopology, Batches]:
    """Batch after batch, of a source without partitions."""
    spout = FeederBatchSpout(FIELDS)
    local, batches = submit(topology_of(spout, state)), []
    for _ in range(random.randint(1, DAYS)):
        batches.append(some_batch(random))
        spout.feed(*batches[-1])
        if random.randint(0, 1):
            run(local, random)
    run(local, random)
    return local, batches


def replays(submit: Submit, state: State, random: Random) -> tuple[LocalTopology, Batches]:
    """The same again: runs with nothing new, and restates, of a source that is as it was or was mended."""
    local, counted = retries(submit, state, random)
    batches = [list(batch) for batch in counted]
    spout = local.spouts["in"]
    for position in random.sample(range(len(batches)), random.randint(0, len(batches))):
        if state.database is None and random.randint(0, 1):
            batches[position] = some_batch(random)
            spout.mend(position + 1, *batches[position])
        try:
            with suppress(TerminalError):
                local.restate(position + 1, why="again", dies_at=random.choice(POINTS))
            local.restate(position + 1, why="again")
        except TerminalError:
            assert state.database is not None
    run(local, random)
    return local, batches


def removals(submit: Submit, state: State, random: Random) -> tuple[LocalTopology, Batches]:
    """Some records remove their key."""
    spout = FeederBatchSpout(FIELDS)
    local, batches = submit(topology_of(spout, state, remove=removes)), []
    for _ in range(random.randint(1, DAYS)):
        batches.append(some_batch(random))
        spout.feed(*batches[-1])
        run(local, random)
    return local, batches


def out_of_order(submit: Submit, state: State, random: Random) -> tuple[LocalTopology, Batches]:
    """A backfill of days in any order, some of them twice."""
    spout = FeederBatchSpout(f"{FIELDS}, at timestamp", time="at")
    local = submit(topology_of(spout, state))
    days = [BEGIN + timedelta(days=number) for number in range(DAYS)]
    batches = [some_batch(random, day) for day in days]
    spout.feed(*random.sample(records := [each for batch in batches for each in batch], len(records)))
    for day in [*random.sample(days, DAYS), *random.sample(days, 2)]:
        run(local, random, interval=Interval(day, day + timedelta(days=1)))
    return local, batches


def outages(submit: Submit, state: State, random: Random) -> tuple[LocalTopology, Batches]:
    """Partitions that come and go; what is opaque leaves them out, what is transactional waits."""
    kind = "opaque" if state.kind is StateKind.OPAQUE else "transactional"
    spout = FeederPartitionedSpout(FIELDS, kind=kind)
    local, batches = submit(topology_of(spout, state)), []
    for _ in range(random.randint(1, DAYS)):
        for partition in random.sample(PARTITIONS, random.randint(1, len(PARTITIONS))):
            batches.append(some_batch(random))
            spout.feed(*batches[-1], partition=partition)
        if random.randint(0, 1):
            local.run(dies_at="initialize.planned")
        away = random.choice(spout.partitions())
        spout.take_away(away)
        with suppress(PartitionUnreadable):
            run(local, random)
        spout.give_back(away)
    run(local, random)
    return local, batches


BEFALLS = [retries, replays, removals, out_of_order, outages]


# ---- what all at once gives


def at_once(local: LocalTopology, batches: Batches) -> dict[str, dict[str, Any]]:
    """Each key's values of all records together; of a key that was removed, of those from then on."""
    (aggregate,) = local.topology.aggregates
    plain = every_aggregate().aggregates[0]
    names = [field.name for field in aggregate.stream.fields]
    named = [[dict(zip(names, record, strict=True)) for record in batch] for batch in batches]
    found = dict[str, dict[str, Any]]()
    for key in KEYS:
        own = [[record for record in batch if record["k"] == key] for batch in named]
        if aggregate.removable:
            since = max((at for at, batch in enumerate(own) if any(map(removes, batch))), default=0)
            own = [[record for record in batch if not removes(record)] for batch in own[since:]]
        for _, together in partials_of(plain, [record for batch in own for record in batch]):
            found[key] = _finished(plain, together)
    return found


def _finished(aggregate: PersistentAggregate, together: Sequence[Any]) -> dict[str, Any]:
    columns = [column.value for column in aggregate.columns]
    parts = {
        name: tuple(value for value, of in zip(together, columns, strict=True) if of == name)
        for name in aggregate.aggregates
    }
    return {name: each.finish(parts[name]) for name, each in aggregate.aggregates.items()}


def check(seed: int, state: str, befalls: Befalls, submit: Submit = submit_topology, told: Any = repr) -> list[Batch]:
    """Run one history, compare what `told` says of its values with those of all records at once, and return its batches."""
    name = f"{befalls.__name__}_{seed}"
    local, batches = befalls(submit, STATES[state](name), Random(seed))
    found, expected = {row["k"]: row for row in local.rows(name)}, at_once(local, batches)
    assert found.keys() == expected.keys(), f"seed {seed}: keys, of the batches {batches}"
    for key, values in expected.items():
        for value, of_all in values.items():
            assert told(found[key][value]) == told(of_all), f"seed {seed}: {value} of {key!r}, of the batches {batches}"
    return local.batches()


def check_befell(histories: Iterable[list[Batch]]) -> None:
    """No sample is as empty as it could be: batches were counted, and some of them by another attempt than the first."""
    batches = [batch for each in histories for batch in each]
    assert sum(batch.status is BatchStatus.COMMITTED for batch in batches) >= SEEDS
    assert any(batch.fence > 1 for batch in batches)


@pytest.mark.rule("R9", "R17", "R18", "R21")
@pytest.mark.parametrize("befalls", BEFALLS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("state", STATES)
def test_batched_in_any_way_is_all_at_once(state: str, befalls: Befalls) -> None:
    check_befell(check(seed, state, befalls) for seed in range(SEEDS))


@pytest.mark.rule("R9", "R17", "R18", "R21")
@pytest.mark.parametrize("befalls", BEFALLS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("state", STATES)
def test_so_it_is_on_postgresql(engine: Engine, databases: Callable[[str], str], state: str, befalls: Befalls) -> None:
    for seed in range(-(-SEEDS // 15)):
        check(seed, state, befalls, partial(on_postgres, engine, databases), shown)


# ---- what it must find


@contextmanager
def kept_on_errors(self: MemoryLedger) -> Iterator[Tables]:
    """A transaction whose changes of states stay when it fails."""
    batches = dict(self.tables.batches)
    try:
        yield self.tables
    except BaseException:
        self.tables.batches = batches
        raise


def no_holes(stream: Stream, planned: StreamPlan, *more: Any) -> Any:
    """Read what is away as if it were empty."""
    found, holes = READ(stream, planned, *more)
    return {**found, **{name: [] for name in holes if name in planned.ranges}}, {}


def added(self: update.Change, value: Partial | None, combine: update.Combine) -> Partial | None:
    """What a key has after a change that removes nothing."""
    return self.partial if value is None else combine(value, self.partial)


def as_it_stands(self: update.Updater, before: Any, txid: int) -> Any:
    """What an opaque key has, also by an earlier attempt of the txid."""
    return (None, None) if before is None or before.value is None else (before.value, before.txid)


READ = emitter._read
# What is made wrong, by which, in what case it shows.
WRONG: Mapping[str, tuple[Any, str, Any, str, Any]] = {
    "a commit that dies is half there": (MemoryLedger, "transaction", kept_on_errors, "non_transactional", retries),
    "a retry apart adds to its own": (update.Updater, "_prev", as_it_stands, "opaque apart", retries),
    "a restate is added": (Tables, "take_place", lambda self, replaced, batch: None, "opaque", replays),
    "a removed key keeps its value": (update.Change, "after", added, "transactional", removals),
    "the last value wins": (Merge, "merge", lambda self, left, right: right, "transactional", out_of_order),
    "a hole counts as read": (emitter, "_read", no_holes, "opaque", outages),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead, state, befalls = WRONG[wrong]
    monkeypatch.setattr(where, name, instead)

    def some_histories() -> None:
        for seed in range(50):
            check(seed, state, befalls)

    with pytest.raises(AssertionError, match=r"^seed "):
        some_histories()
