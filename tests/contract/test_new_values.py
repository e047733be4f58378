"""A table that each commit fills with what it changed in a state, in the transaction of the commit, in both ledgers."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_rebuild import JOB, Rebuilding, counted, longest
from contract.test_restate import NAME, Case, restate_of, words
from refusals import refused
from support import LogSpout, run, word_count

from txbatch import Avg, Count, OpaqueState, Topology, TransactionalState, failpoints
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.state.new_values import NewValuesTable

pytestmark = pytest.mark.rule("R10")
TABLE = "audit.word changes"


class Audited(Case):
    """A topology whose changes go into a table."""

    def __init__(self, backing: Any, **options: Any) -> None:
        super().__init__(backing, **options)
        self.topology.aggregates[0].new_values_into(TABLE)

    @property
    def audited(self) -> list[tuple[Any, ...]]:
        return sorted(self.backing.new_values(TABLE), key=lambda row: (row[-1], row[0]))


@pytest.fixture(params=["returned", "looked at twice"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How PostgreSQL knows what a commit changes: an older one has to look."""
    if request.param != "returned":
        monkeypatch.setattr("txbatch.postgres.state.writer.RETURNING_VERSION_MIN", 10**9)
    return str(request.param)


@pytest.fixture(params=[OpaqueState, TransactionalState])
def case(backing: Any, way: str, request: pytest.FixtureRequest) -> Audited:
    return Audited(backing, state=request.param(NAME))


def test_each_commit_writes_the_values_before_it_and_after_it(case: Audited) -> None:
    case.counts("1", dog=1, cat=2)
    assert case.audited == [("cat", "added", None, 2, 1), ("dog", "added", None, 1, 1)]
    case.counts("2", dog=10, cat=0, emu=1)
    assert case.audited[2:] == [("dog", "changed", 1, 11, 2), ("emu", "added", None, 1, 2)]


@pytest.mark.rule("R17")
def test_a_restate_writes_what_it_changes(case: Audited) -> None:
    case.counts("1", dog=1, cat=2, emu=1)
    case.counts("2", dog=10)
    case.restates(1, dog=4, fox=1, emu=1)
    assert case.audited[4:] == [
        ("cat", "removed", 2, None, 3),
        ("dog", "changed", 11, 14, 3),
        ("fox", "added", None, 1, 3),
    ]


def test_a_commit_that_comes_again_writes_nothing(case: Audited) -> None:
    of = run("1")
    batch = case.goes(case.initialize(of), of, words(dog=1))
    assert not case.backing.commit(case.topology, batch, words(dog=1)).applied
    assert case.audited == [("dog", "added", None, 1, 1)]


def test_a_commit_that_fails_leaves_nothing(case: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    of = run("1")
    batch = case.initialize(of)
    case.backing.emit(case.topology, batch, words(dog=1), "1")
    with monkeypatch.context() as patch:
        patch.setenv("TXBATCH_FAILPOINTS", "commit.before_commit=raise")
        with pytest.raises(failpoints.FailpointReached):
            case.backing.commit(case.topology, batch, words(dog=1))
    assert case.audited == []
    assert case.backing.commit(case.topology, batch, words(dog=1)).applied
    assert case.audited == [("dog", "added", None, 1, 1)]


def test_several_partials_of_one_key_are_one_change(case: Audited) -> None:
    of = run("1")
    case.goes(case.initialize(of), of, {NAME: [(("dog",), (1,)), (("dog",), (2,))]})
    assert case.audited == [("dog", "added", None, 3, 1)]


def test_a_key_that_goes_and_comes_back_is_told(backing: Any, way: str) -> None:
    """What goes in the batch that brings it again is a change, what goes without having been there is none."""
    case, topology = Case(backing), Topology(NAME)
    grouped = topology.new_stream("words", LogSpout({"a": 100})).group_by("word")
    grouped.persistent_aggregate(OpaqueState(NAME), remove=lambda record: False, count=Count()).new_values_into(TABLE)
    case.topology = topology
    for name, partials in enumerate(
        (
            [(("dog",), (1, False, True)), (("emu",), (0, True, False))],
            [(("dog",), (0, True, False))],
            [(("dog",), (2, False, True))],
            [(("dog",), (5, True, True))],
        )
    ):
        of = run(str(name))
        case.goes(case.initialize(of), of, {NAME: partials})
    assert case.backing.new_values(TABLE) == [
        ("dog", "added", None, 1, 1),
        ("dog", "removed", 1, None, 2),
        ("dog", "added", None, 2, 3),
        ("dog", "changed", 2, 5, 4),
    ]


def test_values_are_written_as_reports_show_them(backing: Any, way: str) -> None:
    case, topology, spout = Case(backing), Topology(NAME), LogSpout({"a": 100})
    spout.fields = "word string, price bigint"
    grouped = topology.new_stream("words", spout).group_by("word")
    grouped.persistent_aggregate(OpaqueState(NAME), mean=Avg("price"), count=Count()).new_values_into(TABLE)
    case.topology = topology
    for name, partial in (("1", (3, 2, 2)), ("2", (5, 2, 2))):
        of = run(name)
        case.goes(case.initialize(of), of, {NAME: [(("dog",), partial)]})
    found = [(*row[:2], *(each and float(each) for each in row[2:])) for row in case.backing.new_values(TABLE)]
    assert found == [("dog", "added", None, 1.5, None, 2, 1), ("dog", "changed", 1.5, 2.0, 2, 4, 2)]


@pytest.mark.rule("R23")
def test_a_rebuild_writes_nothing(backing: Any) -> None:
    """Its swap has no txid; the next commit begins with what the new generation has."""
    case = Audited(backing)
    case.counts("1", dog=1)
    case.topology = longest()
    case.topology.aggregates[0].new_values_into("audit.more")
    rebuilding = Rebuilding(case, case.topology)
    assert rebuilding.count(1, dog=5)
    assert rebuilding.swap() == Swapped(1)
    assert case.audited == [("dog", "added", None, 1, 1)]
    of = run("2")
    case.goes(case.initialize(of), of, counted(dog=1))
    assert case.backing.new_values("audit.more") == [("dog", "changed", 5, 6, "dog", "dog", 2)]


@pytest.mark.rule("R23")
def test_a_renamed_value_has_its_new_name_in_the_table_too(backing: Any) -> None:
    case = Audited(backing)
    case.counts("1", dog=1)
    case.topology = word_count(LogSpout({"a": 100}), number=Count(was="count"))
    case.topology.aggregates[0].new_values_into(TABLE)
    case.ledger.change(case.topology, JOB, "a better name")
    case.counts("2", dog=2)
    assert case.audited == [("dog", "added", None, 1, 1), ("dog", "changed", 1, 3, 2)]


@pytest.mark.rule("R23")
def test_a_value_that_the_table_has_no_column_for_is_told_by_the_change(backing: Any) -> None:
    case = Audited(backing)
    case.counts("1", dog=1)
    more = word_count(LogSpout({"a": 100}), count=Count(), pairs=Count(since="now"))
    more.aggregates[0].new_values_into(TABLE)
    if not hasattr(backing, "engine"):
        return  # tables in memory have no columns
    with refused("TX601", "'pairs_before'"):
        case.ledger.change(more, JOB, "one more")
    case.counts("2", dog=2)


def test_a_restate_that_waits_is_of_the_same_table(case: Audited) -> None:
    case.counts("1", dog=1)
    again = restate_of(1)
    batch = case.initialize(again)
    case.goes(batch, again, words(dog=1))
    assert case.audited == [("dog", "added", None, 1, 1)]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("changes", ("TX105", "'audit.word_count_changes'")),
        ("a.b.c", ("TX105", "names", "table")),
        (None, ("TX105", "names", "table")),
        ("report.changes", ("TX102", "'report'")),
        ("state_next_7.x", ("TX102", "ledger")),
        ("contribution_partition_past_12.x", ("TX102", "ledger")),
        ("pg_toast.x", ("TX102", "ledger")),
        (".x", ("TX101", "''")),
    ],
)
def test_what_is_no_table_of_ones_own_is_refused(backing: Any, table: Any, told: tuple[str, ...]) -> None:
    with refused(*told):
        Case(backing).topology.aggregates[0].new_values_into(table)


@pytest.mark.parametrize(
    "schema", ["reporting", "statements", "contributions", "state_of_mind", "txbatch_audit", "report_next"]
)
def test_a_schema_whose_name_only_begins_like_one_of_the_ledger_is_ones_own(backing: Any, schema: str) -> None:
    aggregate = Case(backing).topology.aggregates[0].new_values_into(f"{schema}.changes")
    assert aggregate.state.new_values == NewValuesTable(schema, "changes")


def test_a_state_apart_is_refused(backing: Any) -> None:
    with refused("TX504", "'warehouse'"):
        Case(backing, state=OpaqueState(NAME, database="warehouse")).topology.aggregates[0].new_values_into(TABLE)


def test_two_states_have_two_tables(backing: Any) -> None:
    topology = Topology("both")
    stream = topology.new_stream("words", LogSpout({"a": 10}))
    for name in ("one", "two"):
        stream.group_by("word").persistent_aggregate(OpaqueState(name), count=Count()).new_values_into(TABLE)
    with refused("TX102", "'one'", "'two'"):
        topology.check()


def test_a_table_of_other_columns_is_refused(backing: Any) -> None:
    case = Audited(backing)
    case.counts("1", dog=1)
    topology = word_count(LogSpout({"a": 10}), "other", count=Count(), pairs=Count())
    topology.aggregates[0].new_values_into(TABLE)
    if case.backing.new_values(TABLE) and not hasattr(backing, "engine"):
        return  # tables in memory have no columns
    with refused("TX601", "'pairs_before'"):
        case.ledger.register(topology, "jobs/other.py")
