"""A topology with history keeps its streams, fields, states, keys and values; else it is refused, with the ways out (R23)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from refusals import refused
from support import ListSpout, LogSpout, run

from txbatch import Avg, Count, Max, OpaqueState, SpoutKind, Stream, Sum, Topology, TransactionalState
from txbatch.core.batch.transaction import Batch, BatchStatus, Interval, Metadata, Restate
from txbatch.core.errors import SchemaMismatch
from txbatch.core.protocol import coordinator
from txbatch.core.sources.spout import Spout

NEW_YEAR, DAY = datetime(2024, 1, 1, tzinfo=UTC), timedelta(days=1)
FIELDS = "word string, n bigint"


class Whole(ListSpout):
    """The source of a LogSpout, read without partitions."""

    @property
    def identity(self) -> Metadata:
        return {"spout": "LogSpout"}


class Daily(Whole):
    """The source of a LogSpout, read by time."""

    by_interval = True

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return curr_metadata


class Other(Daily):
    """Another source, read by time."""

    @property
    def identity(self) -> Metadata:
        return {"spout": "Other"}


# By what is stored of it.
READS = {"partitions": lambda: LogSpout({"a": 100}), "whole": lambda: Whole(1, 1), "interval": Daily}


def defined(
    *states: Any,
    name: str = "t",
    streams: tuple[str, ...] = ("in",),
    fields: str = FIELDS,
    spout: Spout | None = None,
    keys: str = "word",
    within: Callable[[Stream], Stream] = lambda stream: stream,
    **values: Any,
) -> Topology:
    """States on one stream, or on the merge of several, behind operations within a batch."""
    topology, made = Topology(name), []
    for stream in streams:
        source = spout or LogSpout({"a": 100})
        source.fields = fields
        made.append(topology.new_stream(stream, source))
    records = made[0] if len(made) == 1 else topology.merge(*made, name="all")
    records = within(records)
    for state in states or ("s",):
        given = OpaqueState(state) if isinstance(state, str) else state
        grouped = records.group_by(*keys.split())
        grouped.persistent_aggregate(given, guarantee="at_least_once", **(values or {"count": Count()}))
    return topology


def partials(topology: Topology) -> Any:
    return {aggregate.state.name: [(("dog",), (1,))] for aggregate in topology.aggregates}


CHANGES = {
    "state gone": (defined("s"), "state 'more' is gone"),
    "state new": (defined("s", "more", "other"), "state 'other' is new"),
    "state renamed": (defined("s", "other"), "state 'more' is gone; state 'other' is new"),
    "state's kind": (defined("s", TransactionalState("more")), "state 'more' changes from opaque to transactional"),
    "contributions": (
        defined("s", OpaqueState("more", contributions=False)),
        "state 'more' changes from with contributions to without contributions",
    ),
    "database": (
        defined("s", OpaqueState("more", database="warehouse")),
        "state 'more' changes from the ledger's database to database 'warehouse', and what is counted stays",
    ),
    "operations per batch": (
        defined("s", "more", within=lambda records: records.distinct().filter("n > 1")),
        "state 's' changes from counting all records together to counting per batch: distinct",
    ),
    "key": (defined("s", "more", keys="n"), "key 'word' of state 's' is gone; key 'n' of state 's' is new (bigint)"),
    "value": (
        defined("s", "more", count=Count(), most=Max("n")),
        "value 'most' of state 's' is new (bigint, greatest)",
    ),
    "value's aggregate": (
        defined("s", "more", count=Sum("n")),
        "value 'count' of state 's' changes from Count to Sum of n",
    ),
    "value's field": (
        defined("s", "more", count=Count("n")),
        "value 'count' of state 's' changes from Count to Count of n",
    ),
    "stream new": (
        defined("s", "more", streams=("in", "on")),
        "stream 'on' is new; state 's' changes from counting stream in to counting stream in, on",
    ),
    "stream renamed": (defined("s", "more", streams=("on",)), "stream 'in' is gone; stream 'on' is new"),
    "field new": (defined("s", "more", fields=FIELDS + ", x date"), "field 'x' of stream 'in' is new (date)"),
    "field gone": (defined("s", "more", fields="word string"), "field 'n' of stream 'in' is gone"),
    "field renamed": (
        defined("s", "more", fields="word string, m bigint"),
        "field 'n' of stream 'in' is gone; field 'm' of stream 'in' is new (bigint)",
    ),
    "field's type": (
        defined("s", "more", fields="word string, n int"),
        "field 'n' of stream 'in' changes from bigint to int",
    ),
    "spout": (defined("s", "more", spout=ListSpout(1)), "stream 'in' reads "),
    "spout's kind": (
        defined("s", "more", spout=LogSpout({"a": 1}, kind=SpoutKind.OPAQUE)),
        """stream 'in' reads {"kind":"opaque"}, but its batches were read from {"kind":"transactional"}""",
    ),
    "reads whole": (
        defined("s", "more", spout=Whole(1)),
        """stream 'in' reads {"reads":"whole"}, but its batches were read from {"reads":"partitions"}""",
    ),
    "reads by interval": (
        defined("s", "more", spout=Daily()),
        """stream 'in' reads {"reads":"interval"}, but its batches were read from {"reads":"partitions"}""",
    ),
    "the order of states": (defined("more", "s"), None),
    "the order of fields": (defined("s", "more", fields="n bigint, word string"), None),
}


# These can be applied to what is counted.
APPLIED = {
    "state gone": "in place",
    "field new": "from now on",
    "field gone": "in place",
    "field renamed": "in place: field 'n'",
}


@pytest.mark.rule("R23")
def test_what_is_counted_again_is_history_too(backing: Any) -> None:
    topology, changed = defined("s"), defined("s", "more")
    backing.whole(topology, partials(topology), "1")
    again = replace(run("again"), restate=Restate(1, "a file was wrong"))
    assert coordinator.initialize_transaction(backing.ledger, topology, again).txid == 2
    with refused("TX601", "'t'", "txid 2"):
        backing.ledger.check_definition(changed, "jobs/job.py")


@pytest.mark.rule("R23")
@pytest.mark.parametrize("reached", ["planned", "committed"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_definition_uses_no_txid(backing: Any, change: str, reached: str) -> None:
    topology, (changed, says) = defined("s", "more"), CHANGES[change]
    if reached == "planned":
        backing.initialize(topology, "1")
    else:
        backing.whole(topology, partials(topology), "1")
    if says is None:
        backing.ledger.check_definition(changed, "jobs/job.py")
        backing.ledger.register(changed, "jobs/job.py")
        return
    for refuse in (
        lambda: backing.ledger.check_definition(changed, "jobs/job.py"),
        lambda: backing.initialize(changed, "2"),
    ):
        with pytest.raises(SchemaMismatch) as raised:
            refuse()
        assert says in str(raised.value)
        history = "" if reached == "planned" else " has history, up to txid 1, and"
        assert f"topology 't'{history} is defined otherwise now: " in str(raised.value)
        way_out = "Put the old definition back; or `txbatch rebuild t --why"
        if change == "database":
            way_out = "Put the old definition back; or define another topology, with states of other names"
        if change in APPLIED:
            applied = f"applies it to 't', {APPLIED[change]}"
            way_out = f"Put the old definition back; or `txbatch change jobs/job.py --why '...' --yes` {applied}"
        if reached == "planned":
            way_out = "Nothing is counted yet: put the old definition back; or `txbatch drop t` and run it again"
        assert way_out in str(raised.value)
        assert len(re.findall("`txbatch ", str(raised.value))) <= 1, "the first way out; the page has the others"
        assert "restate" not in str(raised.value)
    backing.ledger.check_definition(topology, "jobs/job.py")
    assert backing.initialize(topology, "1").txid == 1
    with refused("TX401", "txid 2"):
        backing.ledger.batch("t", 2)


def beside_days(spout: Spout) -> Topology:
    """A topology that reads by time whatever else it reads."""
    topology = Topology("t")
    streams = [topology.new_stream("days", Other()), topology.new_stream("in", spout)]
    topology.merge(*streams, name="all").group_by("word").persistent_aggregate(OpaqueState("s"), count=Count())
    return topology


@pytest.mark.rule("R2")
@pytest.mark.parametrize(("before", "now"), list(permutations(READS, 2)))
def test_one_of_several_streams_that_reads_otherwise(backing: Any, before: str, now: str) -> None:
    topology, day = beside_days(READS[before]()), replace(run("1"), interval=Interval(NEW_YEAR, NEW_YEAR + DAY))
    backing.ledger.register(topology, "jobs/job.py")
    planned = coordinator.initialize_transaction(backing.ledger, topology, day)
    assert isinstance(planned, Batch)
    assert "in" in planned.plan.streams
    with pytest.raises(SchemaMismatch) as raised:
        backing.ledger.register(beside_days(READS[now]()), "jobs/job.py")
    reads = f"""stream 'in' reads {{"reads":"{now}"}}, but its batches were read from {{"reads":"{before}"}}"""
    assert f"is defined otherwise now: {reads}. Nothing is counted yet: put the old definition back" in str(
        raised.value
    )


@pytest.mark.rule("R23")
def test_another_aggregate_of_the_same_columns_is_another_value(backing: Any) -> None:
    backing.initialize(defined(n=Avg("n")), "1")
    with refused("TX601", "'n'", "'s'", "'n_sum'", "bigint"):
        backing.initialize(defined(n_sum=Sum("n"), n_count=Count("n")), "2")


@pytest.mark.rule("R23")
def test_a_state_left_out_for_one_deployment_and_put_back(backing: Any) -> None:
    whole, less = defined("a", "b", "c"), defined("a")
    backing.whole(whole, partials(whole), "1")
    with refused("TX601", "'b'", "'c'"):
        backing.initialize(less, "2")
    backing.whole(whole, partials(whole), "2")
    assert {name: backing.state(name) for name in "abc"} == {name: {("dog",): (2, 2)} for name in "abc"}


def test_before_the_first_txid_streams_and_new_states_are_free(backing: Any) -> None:
    backing.ledger.register(defined("s"), "jobs/job.py")
    backing.ledger.register(defined("s", "more", streams=("other",), spout=ListSpout(1)), "jobs/job.py")
    with refused("TX601", "'more'", "`txbatch drop t`"):
        backing.ledger.register(defined("s"), "jobs/job.py")


def test_the_first_plan_is_that_of_the_definition_it_was_made_by(backing: Any) -> None:
    """Two job files of one name at their very first start: whoever plans first is what the topology is from then on."""
    here, there = defined(spout=LogSpout({"a": 100})), defined(spout=LogSpout({"b": 100}), fields="word string")
    for topology in (here, there):
        backing.ledger.register(topology, f"jobs/{topology.streams['in'].fields}.py")
    batch = coordinator.initialize_transaction(backing.ledger, here, run("1"))
    assert isinstance(batch, Batch)
    with refused("TX601", "'n'", "'in'"):
        backing.ledger.register(there, "jobs/there.py")
    backing.ledger.register(here, "jobs/here.py")


def test_where_nothing_is_committed_the_simple_way_out_is_told(backing: Any) -> None:
    """A batch is planned, and perhaps emitted, and has failed by the job as it was: there is nothing to rebuild."""
    topology, told = (
        defined("s"),
        r"state 'more' is new. Nothing is counted yet: put the old definition back; or `txbatch drop t` and run it again$",
    )
    batch = backing.initialize(topology, "1")
    with pytest.raises(SchemaMismatch, match=told):
        backing.initialize(defined("s", "more"), "1")
    backing.emit(topology, batch, partials(topology), "1")
    with pytest.raises(SchemaMismatch, match=told):
        backing.initialize(defined("s", "more"), "1")
    backing.commit(topology, batch, partials(topology))
    with refused("TX601", "txid 1", "rebuild"):
        backing.initialize(defined("s", "more"), "2")


def test_what_was_aborted_is_no_history(backing: Any) -> None:
    backing.initialize(defined("s"), "1")
    backing.ledger.abort("t", 1, "a wrong source")
    other = defined("s", "more", fields="word string, n int")
    assert backing.whole(other, partials(other), "2").txid == 2


def test_what_was_aborted_can_still_be_given_up_so_its_source_stays(backing: Any) -> None:
    """Else the records of another source would be given up, which nobody has read."""
    backing.initialize(defined("s"), "1")
    backing.ledger.abort("t", 1, "a wrong source")
    other = defined("s", spout=LogSpout({"a": 100}, kind=SpoutKind.OPAQUE))
    with refused("TX601", "`txbatch drop t`"):
        backing.initialize(other, "2")
    assert backing.ledger.skip("t", 1, "poison").txid == 2


def test_what_was_given_up_is_history(backing: Any) -> None:
    backing.initialize(defined("s"), "1")
    backing.ledger.skip("t", 1, "poison")
    told = r"has history, up to txid \d, .*state 'more' is new\..* Put the old definition back"
    with pytest.raises(SchemaMismatch, match=told):
        backing.ledger.register(defined("s", "more"), "jobs/job.py")
    mended = replace(run("mended"), restate=Restate(2, "it was mended", skipped=True))
    again = coordinator.initialize_transaction(backing.ledger, defined("s"), mended)
    backing.emit(defined("s"), again, partials(defined("s")), "mended")
    backing.commit(defined("s"), again, partials(defined("s")))
    with pytest.raises(SchemaMismatch, match=told):
        backing.ledger.register(defined("s", "more"), "jobs/job.py")
    backing.ledger.register(defined("s"), "jobs/job.py")


def test_a_state_that_moves_to_another_topology(backing: Any) -> None:
    old = defined("s", "more")
    backing.whole(old, partials(old), "1")
    with refused("TX102", "'more'", "'t'"):
        backing.initialize(defined("more", name="new"), "1")
    with refused("TX601", "'more'"):
        backing.initialize(defined("s"), "2")


def test_a_batch_in_flight_goes_on_when_the_definition_is_put_back(backing: Any) -> None:
    topology = defined("s")
    batch = backing.initialize(topology, "1")
    with pytest.raises(SchemaMismatch):
        backing.initialize(defined("s", "more"), "1")
    backing.emit(topology, batch, partials(topology), "1")
    assert backing.commit(topology, batch, partials(topology)).batch.status is BatchStatus.COMMITTED
