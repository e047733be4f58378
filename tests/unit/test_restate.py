"""`Runner.restate` over the in-memory ledger: committed batches are counted again, in their places (R17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from refusals import refused
from support import LogSpout, word_count

from txbatch import OpaqueState, PartitionUnreadable, SpoutKind
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, Restate, Run
from txbatch.core.errors import BadRecord, DefinitionError, UnknownName
from txbatch.core.protocol.restate import check_topology
from txbatch.core.sources.spout import Metadata
from txbatch.memory.application import MemoryApplication
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryJob
from txbatch.memory.staging import MemoryStaging
from txbatch.run.runner import Runner
from txbatch.run.steps import Steps


class Words(LogSpout):
    """Each partition's records are words, which a test changes as it goes."""

    away: tuple[str, ...] = ()

    def __init__(self, words: Mapping[str, list[str]], size: int = 2, kind: SpoutKind = SpoutKind.OPAQUE) -> None:
        super().__init__({name: len(each) for name, each in words.items()}, size, kind)
        self.words = dict(words)

    def batch(self, plan: Metadata) -> list[tuple[str]]:
        ((name, range_),) = plan["partitions"].items()
        if name in self.away:
            raise PartitionUnreadable(f"{name} is away")
        words = self.words[name][range_["start"] : range_["end"]]
        if "secret" in words:
            raise BadRecord("'secret' is no word; mend the source")
        return [(word,) for word in words]


class Case:
    """A runner, its spout and its ledger."""

    def __init__(self, **words: list[str]) -> None:
        self.spout = Words(words)
        self.topology = word_count(self.spout)
        self.ledger, self.staging = MemoryLedger(), MemoryStaging()
        self.application: Any = MemoryApplication(self.topology, self.staging)
        self.runner = Runner(
            Steps(MemoryJob(self.topology), self.ledger, self.staging, MemoryRunLocks()), self.application
        )

    def counts(self) -> dict[str, int]:
        return {key[0]: row.value[0] for key, row in self.ledger.rows("word_count").items()}

    def restate(self, *txids: int, why: str = "it was wrong", **more: Any) -> list[Batch]:
        return list(self.runner.restate(txids, why, "anna", **more))


@pytest.fixture
def case() -> Case:
    """Two batches of two words each."""
    case = Case(a=["dog", "cat", "dog", "emu"])
    assert [batch.txid for batch in case.runner.run(until_idle=True)] == [1, 2]
    return case


def test_batches_are_counted_again_one_after_the_other(case: Case) -> None:
    case.spout.words["a"] = ["dog", "dog", "fox", "emu"]
    done = case.restate(2, 1)
    assert [(batch.txid, batch.position, batch.kind, batch.succeeded) for batch in done] == [
        (3, 1, BatchKind.RESTATE, True),
        (4, 2, BatchKind.RESTATE, True),
    ]
    assert case.counts() == {"dog": 2, "fox": 1, "emu": 1}
    assert list(case.runner.run()) == []


def test_a_restate_named_by_a_restate_stands_for_its_position(case: Case) -> None:
    case.restate(1)
    assert [(batch.txid, batch.position) for batch in case.restate(3, 1, why="still wrong")] == [(4, 1)]


def test_a_killed_call_goes_on_and_a_finished_one_is_made_anew(case: Case) -> None:
    emit, emitted = case.application.emit, []

    def killed_at_the_second(*given: Any) -> None:
        emitted.append(given)
        if len(emitted) == 2:
            raise KeyboardInterrupt
        emit(*given)

    case.application.emit = killed_at_the_second
    with pytest.raises(KeyboardInterrupt):
        case.restate(1, 2)
    assert {batch.txid: batch.position for batch in case.restate(1, 2)} == {3: 1, 4: 2}
    assert [(batch.txid, batch.position) for batch in case.restate(1, 2)] == [(5, 1), (6, 2)]


def test_nothing_is_begun_when_one_of_them_cannot_be(case: Case) -> None:
    with pytest.raises(UnknownName):
        case.restate(1, 9)
    with pytest.raises(DefinitionError, match="say why it is counted again"):
        case.restate(1, why=" ")
    assert len(case.ledger.tables.batches) == 2


def test_whole_or_not_at_all(case: Case) -> None:
    case.spout.words["b"] = ["ant"]
    case.spout.lengths["b"] = 1
    assert [batch.txid for batch in case.runner.run(until_idle=True)] == [3]
    case.spout.away = ("b",)
    with refused("TX201", "partition", "'b'", "'words'", "restate"):
        case.restate(3)
    case.spout.away = ()
    assert [(batch.txid, batch.position) for batch in case.runner.run()] == [(4, 3)]


def test_a_restate_that_cannot_be_finished_keeps_no_batch_back(case: Case) -> None:
    case.spout.words |= {"b": ["ant"]}
    case.spout.lengths |= {"a": 6, "b": 1}
    case.spout.words["a"] += ["dog", "dog"]
    list(case.runner.run())
    case.spout.away = ("b",)
    with pytest.raises(PartitionUnreadable):
        case.restate(3)
    case.spout.words["a"] += ["dog"]
    case.spout.lengths["a"] = 7
    assert [batch.txid for batch in case.runner.run()] == [5]
    aborted = case.ledger.batch("word_count", 4)
    assert aborted.status is BatchStatus.ABORTED
    assert [(batch.txid, batch.position) for batch in case.restate(3, accept_missing=True)] == [(6, 3)]


def test_the_reason_of_an_aborted_restate_shows_no_record(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """All readers may read reasons; only some may read records, in the quarantine and in errors of attempts."""
    case.spout.words["a"][0] = "secret"
    with refused("TX301", "secret"):
        case.restate(1)
    case.spout.words["a"] += ["dog"]
    case.spout.lengths["a"] += 1
    abort, reasons = case.ledger.abort, list[str]()
    monkeypatch.setattr(case.ledger, "abort", lambda *given: reasons.append(given[2]) or abort(*given))
    list(case.runner.run())
    assert case.ledger.batch("word_count", 3).status is BatchStatus.ABORTED
    assert reasons == ["a record of the batch cannot be counted; report.attempts has the error"]


def test_the_next_run_finishes_what_a_killed_restate_began(case: Case) -> None:
    case.spout.words["a"][0] = "fox"
    emit, case.application.emit = case.application.emit, _killed
    with pytest.raises(KeyboardInterrupt):
        case.restate(1, accept_missing=True)
    case.application.emit = emit
    unfinished = case.ledger.oldest_unfinished("word_count", "cli:", above=0)
    assert unfinished is not None
    assert unfinished.run.restate == Restate(1, "it was wrong", "anna", accept_missing=True, skipped=True)
    assert [(batch.txid, batch.position) for batch in case.runner.run()] == [(3, 1)]
    assert case.counts() == {"fox": 1, "cat": 1, "dog": 1, "emu": 1}


def _killed(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_run_with_an_id_counts_a_position_again_once(case: Case) -> None:
    assert [batch.txid for batch in case.restate(1, run_id="again")] == [3]
    assert [batch.txid for batch in case.restate(1, run_id="again")] == [3]


def test_what_is_folded_stays(case: Case) -> None:
    states = case.ledger.tables.states
    object.__setattr__(states["word_count"], "horizon", 1)
    with refused("TX603", "word_count", "txid 1"):
        case.restate(1)
    assert [batch.position for batch in case.restate(2)] == [2]


def test_what_is_folded_between_plan_and_commit_stays(case: Case) -> None:
    asked = Run("again", restate=Restate(1, "it was wrong"))
    steps = case.runner.steps
    batch = steps.initialize_transaction(asked)
    assert isinstance(batch, Batch)
    steps.emit_batch(batch, asked, case.application.emit)
    object.__setattr__(case.ledger.tables.states["word_count"], "horizon", 1)
    with refused("TX603", "is folded"):
        steps.commit(batch, asked)
    assert case.counts() == {"dog": 2, "cat": 1, "emu": 1}


def test_a_spout_that_fails_is_named(case: Case) -> None:
    def plan_again(*_: Any) -> Any:
        raise OSError("the source is away")

    case.spout.plan_again = plan_again  # type: ignore[method-assign]
    with refused("TX209", "'words'"):
        case.restate(1)


def test_a_state_without_contributions_names_rebuild() -> None:
    topology = word_count(Words({"a": ["dog"]}), state=OpaqueState("word_count", contributions=False))
    with refused("TX603", "'word_count'", "rebuild", "--why"):
        check_topology(topology)
