"""Who reads a state, and a rebuild that comes between two of its attempts or batches (R22, R23), in both ledgers."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_closings import Finals
from contract.test_keep_windows import BY, Keeping
from contract.test_keep_windows import rebuilds as rebuild_of
from contract.test_look_ups import LookUps
from contract.test_rebuild import Rebuilding
from contract.test_restate import Case, restate_of, words
from contract.test_upstream import JOB, Chain
from contract.test_watermarks import at
from refusals import refused
from support import LogSpout, code, run, word_count

from txbatch import Count, Max, OpaqueState, StateSpout, Topology
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import RecordsGone, SchemaMismatch, TerminalError
from txbatch.core.protocol.coordinator import NothingNew

pytestmark = pytest.mark.rule("R23")


@pytest.fixture
def chain(backing: Any) -> Chain:
    return Chain(backing)


def rebuilds(chain: Case, **counted: dict[str, int]) -> None:
    """Count these words of each version, such as `_2`, by the job as it is, and swap."""
    rebuilding = Rebuilding(chain, chain.topology)
    for txid, of in counted.items():
        assert rebuilding.offer(int(txid[1:]), words(**of))
    assert isinstance(rebuilding.swap(), Swapped)


def goes(chain: Chain, name: str, **counts: int) -> None:
    of = run(name)
    chain.goes(chain.initialize(of), of, words(**counts))


@pytest.mark.rule("R17")
def test_an_attempt_is_given_the_txid_at_which_a_key_went_before_and_after_a_rebuild(chain: Chain) -> None:
    chain.counts("1", dog=1, cat=2)
    chain.reads("a")
    chain.restates(1, cat=2)
    chain.counts("3", emu=1)
    chain.counts("4", emu=1)
    batch = chain.plans("b")
    first = chain.exports(batch, "b")
    assert first == [("dog", "removed", 1, None, 2), ("emu", "added", None, 2, 4)]
    rebuilds(chain, _2={"cat": 2}, _3={"emu": 1}, _4={"emu": 1})
    assert chain.exports(batch, "b") == first
    goes(chain, "5", emu=1)
    rebuilds(chain, _2={"cat": 2}, _3={"emu": 1}, _4={"emu": 1}, _5={"emu": 1})
    assert chain.exports(batch, "b") == first


@pytest.mark.rule("R17", "R22")
def test_what_retention_had_folded_of_the_key_is_no_matter(chain: Chain) -> None:
    chain.counts("1", dog=1)
    chain.counts("2", dog=1, cat=1)
    chain.counts("3", cat=1)
    list(chain.backing.retention.fold("word_count", 1))
    chain.reads("a")
    chain.restates(2, cat=1)
    chain.restates(3)
    batch = chain.plans("b")
    first = chain.exports(batch, "b")
    assert first == [("cat", "changed", 2, 1, 5), ("dog", "changed", 2, 1, 4)]
    rebuilds(chain, _1={"dog": 1}, _4={"cat": 1}, _5={})
    assert chain.exports(batch, "b") == first


def test_what_a_rebuild_took_away_is_told_by_the_last_txid_before_and_after_another_rebuild(chain: Chain) -> None:
    chain.counts("1", dog=1, cat=2)
    chain.reads("a")
    rebuilds(chain, _1={"cat": 2})
    goes(chain, "2", emu=1)
    batch = chain.plans("b")
    first = chain.exports(batch, "b")
    assert first == [("dog", "removed", 1, None, 2), ("emu", "added", None, 1, 2)]
    rebuilds(chain, _1={"cat": 2}, _2={"emu": 1})
    assert chain.exports(batch, "b") == first


# ---- names that change


def visits(backing: Any, **values: Any) -> Keeping:
    """Four hours of visits, of which these are counted."""
    visits = Keeping(backing)
    visits.topology = counted_as(visits, **(values or {"n": Count()}))
    visits.aggregate = visits.topology.aggregates[0]
    return visits


def counted_as(visits: Keeping, **values: Any) -> Topology:
    topology = Topology("visits", max_pending=3)
    stream = topology.new_stream("visits", visits.spout).with_watermark("at", "10 minutes", late="drop")
    stream.group_by(BY["hours"], "shop").persistent_aggregate(OpaqueState("visits"), **values)
    return topology


def changes_as(visits: Keeping, fields: str, emit: str = "changes") -> Finals:
    return Finals(visits, "reader", f"window_start timestamp, {fields}", emit)


@pytest.mark.parametrize("after", [{"m": Count(was="n"), "k": Count()}, {"k": Count()}], ids=["renamed", "dropped"])
def test_a_value_keeps_its_name_until_what_a_rebuild_replaced_is_dropped(backing: Any, after: dict[str, Any]) -> None:
    of = visits(backing, n=Count(), k=Count())
    of.counts("1", a=[10, 70])
    reader = changes_as(of, "k_before bigint, k_after bigint")
    assert reader.reads("a") == [(at(0), None, 1), (at(60), None, 1)]
    assert isinstance(backing.rebuilds.swap(rebuild_of(of, {1: [10, 70]}), of.topology), Swapped)
    changed = counted_as(of, **after)
    with refused("TX602", "rebuild"):
        of.ledger.change(changed, JOB, "a test")
    with refused("TX606", "'reader'", "'visits'", "rebuild"):
        backing.rebuilds.drop_past("visits")
    of.counts("2", a=[80])
    assert reader.reads("b") == [(at(60), 1, 2)]
    assert len(backing.rebuilds.drop_past("visits")) == 1
    of.ledger.change(changed, JOB, "a test")
    of.topology, of.aggregate = changed, changed.aggregates[0]
    of.counts("3", a=[85])
    assert reader.reads("c") == [(at(60), 2, 3)]


def test_a_topology_and_a_state_keep_their_names_as_well(chain: Chain) -> None:
    chain.counts("1", dog=1)
    rebuilds(chain, _1={"dog": 1})
    for renamed in (Topology("others", was="word_count"), Topology("word_count")):
        stream = renamed.new_stream("words", LogSpout({"a": 1000})).group_by("word")
        state = OpaqueState("word_count" if renamed.was else "others", was=None if renamed.was else "word_count")
        stream.persistent_aggregate(state, count=Count())
        with refused("TX602", "rebuild"):
            chain.ledger.change(renamed, JOB, "a test")


def test_a_value_is_not_renamed_by_a_rebuild_while_another_topology_reads_the_state(backing: Any) -> None:
    """What was before has the other name, and its reader would take each key for new."""
    of = visits(backing)
    of.counts("1", a=[10])
    changes_as(of, "n_before bigint, n_after bigint").reads("a")
    renamed = counted_as(of, m=Count(was="n"), k=Count())
    with refused("TX607", "'m'", "'visits'", "'n'", "'reader'"):
        backing.rebuilds.begin(renamed, JOB, code("new"), "one more", "ann")
    begun = counted_as(of, n=Count(), k=Count())
    assert backing.rebuilds.begin(begun, JOB, code("new"), "one more", "ann").number


@pytest.mark.parametrize("after", [{"m": Count(was="n")}, {"k": Count(since="now")}], ids=["renamed", "dropped"])
@pytest.mark.parametrize("emit", ["changes", "final"])
def test_values_stay_while_an_open_batch_reads_the_state(backing: Any, after: dict[str, Any], emit: str) -> None:
    of = visits(backing)
    of.counts("1", a=[10, 80])
    reader = changes_as(of, "n_after bigint" if emit == "changes" else "n bigint", emit)
    batch = reader.plans("a")
    changed = counted_as(of, **after)
    with refused("TX602", "'visits'", "'reader'"):
        of.ledger.change(changed, JOB, "a test")
    assert reader.exports(batch, "a") == [(at(0), 1), (at(60), 1)][: 2 if emit == "changes" else 1]
    backing.ledger.abort("reader", batch.txid, "a test")
    of.ledger.change(changed, JOB, "a test")
    of.topology, of.aggregate = changed, changed.aggregates[0]
    with pytest.raises(SchemaMismatch, match="have no 'n"):
        reader.plans("b")


def test_values_stay_while_an_open_batch_looks_the_state_up(backing: Any) -> None:
    case = LookUps(backing)
    case.counts("1", dog=1)
    batch = case.plans("a")
    with refused("TX602", "'word_count'", "'looks'"):
        case.ledger.change(word_count(LogSpout({"a": 1000}), number=Count(was="count")), JOB, "a test")
    with refused("TX602", "'word_count'", "'looks'"):
        case.ledger.change(word_count(LogSpout({"a": 1000}), state=OpaqueState("other", since="now")), JOB, "a test")
    assert case.exports(batch, "a") == {0: [("dog", 1)]}


def test_a_column_that_is_gone_is_told_with_the_way_out(chain: Chain) -> None:
    """Also where the change came just after the batch was planned."""
    chain.counts("1", dog=1)
    range_ = chain.plans("a").plan.streams["changes"].ranges["word_count"]
    with refused("TX601", "'size_after'", "committed"):
        list(chain.ledger.upstream.changes("word_count", range_, ["word", "size_after"]))


def test_a_state_that_a_rebuild_began_is_read_at_once(backing: Any) -> None:
    """As of the last txid before there was none of it."""
    of = visits(backing)
    of.counts("1", a=[10])
    both = Topology("visits", max_pending=3)
    grouped = (
        both.new_stream("visits", of.spout)
        .with_watermark("at", "10 minutes", late="drop")
        .group_by(BY["hours"], "shop")
    )
    grouped.persistent_aggregate(OpaqueState("visits"), n=Count())
    grouped.persistent_aggregate(OpaqueState("more"), n=Count())
    of.topology = both
    assert isinstance(backing.rebuilds.swap(rebuild_of(of, {1: [10]}), both), Swapped)
    reader = Finals(of, "reader")
    reader.topology = Topology("reader")
    changes = reader.topology.new_stream("in", StateSpout("more", "window_start timestamp, n_after bigint"))
    changes.persistent_aggregate(OpaqueState("reader"), n=Count())
    assert reader.reads("a") == []
    of.counts("2", a=[20])
    assert reader.reads("b") == [(at(0), 2)]


@pytest.mark.rule("R26")
def test_a_value_is_read_over_a_rebuild_that_changed_one_whose_name_begins_alike(backing: Any) -> None:
    """`n_b` is not of `n`: the windows closed before the rebuild are there at once, as they were then."""
    of = visits(backing, n=Count(), n_b=Count("shop"))
    of.counts("1", a=[10, 80])
    changed = counted_as(of, n=Count(), n_b=Max("shop"))
    of.topology, of.aggregate = changed, changed.aggregates[0]
    assert isinstance(backing.rebuilds.swap(rebuild_of(of, {1: [10, 20, 80]}), changed), Swapped)
    assert changes_as(of, "n bigint", "final").plans("a").plan.streams["closed"].ranges["visits"]["start"] == 0
    assert isinstance(Finals(of, "another", "window_start timestamp, n_b string").plans("a"), NothingNew)


def other_state(name: str, **state: Any) -> Topology:
    return word_count(LogSpout({"a": 1000}), state=OpaqueState(name, **state))


STAYS = r"state 'word_count' stays unchanged while topology 'top' reads the state: .* `txbatch drop top`, change"


def test_a_rebuild_lets_no_state_go_that_others_read(chain: Chain) -> None:
    chain.counts("1", dog=1)
    chain.reads("a")
    with pytest.raises(TerminalError, match=STAYS):
        Rebuilding(chain, other_state("other"))


def test_a_state_stays_where_a_reader_comes_while_the_rebuild_counts(chain: Chain) -> None:
    chain.counts("1", dog=1)
    rebuilding = Rebuilding(chain, other_state("other"))
    assert rebuilding.offer(1, {"other": words(dog=1)["word_count"]})
    chain.reads("a")
    with pytest.raises(TerminalError, match=STAYS):
        rebuilding.swap()


def test_a_swap_is_tried_again_once_an_open_batch_that_looks_up_has_ended(backing: Any) -> None:
    """What was counted for the rebuild is not counted again."""
    case = LookUps(backing)
    case.counts("1", dog=1)
    rebuilding = Rebuilding(case, other_state("other"))
    assert rebuilding.offer(1, {"other": words(dog=1)["word_count"]})
    batch = case.plans("a")
    with refused("TX602", "'looks'"):
        rebuilding.swap()
    case.ledger.abort("looks", batch.txid, "a test")
    assert rebuilding.swap() == Swapped(1)


def test_a_state_that_a_rebuild_began_is_not_there_as_of_a_txid_before(backing: Any) -> None:
    """Another one had its name before, and was looked up in."""
    case = LookUps(backing)
    case.counts("1", dog=1)
    case.looked("a")
    case.ledger.change(other_state("other", since="now"), JOB, "nobody looks it up")
    case.topology = other_state("word_count")
    rebuilds(case, _1={"dog": 1})
    begun = r"state 'word_count' was begun by rebuild \d+, and is not there as of txid 1; "
    with pytest.raises(RecordsGone, match=begun + "look-ups as of then cannot be counted any more"):
        case.plans("again", restate_of(1).restate)
    with pytest.raises(RecordsGone, match=begun + "nothing was committed since: run topology 'word_count'"):
        case.plans("b")
    case.counts("2", dog=1)
    assert case.exports(case.plans("c"), "c") == {0: [("dog", 2)]}


@pytest.mark.rule("R17")
def test_what_was_dropped_of_a_rebuild_is_not_there_by_the_topologys_new_name_either(chain: Chain) -> None:
    chain.counts("1", dog=1)
    chain.reads("a")
    rebuilds(chain, _1={"dog": 2})
    goes(chain, "2", dog=1)
    chain.reads("b")
    assert len(chain.backing.rebuilds.drop_past("word_count")) == 1
    renamed = Topology("others", was="word_count")
    stream = renamed.new_stream("words", LogSpout({"a": 1000})).group_by("word")
    stream.persistent_aggregate(OpaqueState("word_count"), count=Count())
    chain.ledger.change(renamed, JOB, "a better name")
    with refused("TX205", "txid 1", "rebuild"):
        chain.plans("again", restate_of(1).restate)
