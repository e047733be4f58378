"""The steps of a batch: an attempt is of a job that is compared, and one that failed is noted as failed, with its own error."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from refusals import refused
from support import ListSpout, run, word_count

from txbatch import Count
from txbatch.core.batch.transaction import Assignment, Batch
from txbatch.core.errors import (
    BadFunction,
    BadRecord,
    EmissionFailed,
    FunctionFailed,
    OutcomeUnknown,
    PartitionUnreadable,
    QuarantineFull,
    SchemaMismatch,
    SparkFailed,
    TerminalError,
    TransientError,
    TxbatchError,
    Unavailable,
    Unexpected,
)
from txbatch.core.topology.topology import Topology
from txbatch.error_pages import NAMES
from txbatch.launch.driver import _fail
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryJob
from txbatch.orchestration.failing.for_airflow import failing_as_airflow
from txbatch.run.steps import Steps
from txbatch.storage.staging import AttemptFolder, Staging


@pytest.mark.parametrize("name", ["fence", "error"])
@pytest.mark.parametrize("what", ["of a newer txbatch", "without end", "a folder", "forbidden"])
def test_a_file_that_cannot_be_read_does_not_hide_why_an_attempt_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    topology, ledger, noted = word_count(ListSpout(5)), MemoryLedger(), list[str]()
    steps = Steps(
        MemoryJob(topology), ledger, Staging(tmp_path.as_uri()), MemoryRunLocks(), lambda *_, **__: nullcontext()
    )
    batch = steps.initialize_transaction(run("1"))
    assert isinstance(batch, Batch)
    monkeypatch.setattr(ledger, "fail_attempt", lambda _, why: noted.append(why))

    def forbidden(*_: object) -> None:
        raise PermissionError("not yours")

    def submit(folder: Any, _: object) -> None:
        path = Path(folder.path(f"{name}.json"))
        path.unlink(missing_ok=True)
        monkeypatch.setattr(AttemptFolder, "_open", forbidden if what == "forbidden" else AttemptFolder._open)
        match what:
            case "a folder":
                path.mkdir()
            case "without end":
                path.touch()
                os.truncate(path, 1 << 40)
            case _:
                path.write_text(json.dumps({"format": 99}))
        raise TransientError("spark-submit ended with 1")

    with pytest.raises(TransientError, match="spark-submit ended with 1"):
        steps.emit_batch(batch, run("1"), submit)
    assert noted == ["TX002 (try again): spark-submit ended with 1"]


def test_a_failure_that_the_ledger_cannot_record_is_raised_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A terminal failure stays one: no retry runs Spark again only because the ledger is away (R24)."""
    topology, ledger = word_count(ListSpout(5)), MemoryLedger()
    steps = Steps(
        MemoryJob(topology), ledger, Staging(tmp_path.as_uri()), MemoryRunLocks(), lambda *_, **__: nullcontext()
    )
    batch = steps.initialize_transaction(run("1"))
    assert isinstance(batch, Batch)

    def away(*_: object) -> None:
        raise Unavailable("connection refused")

    def submit(*_: object) -> None:
        monkeypatch.setattr(ledger, "fail_attempt", away)
        raise BadRecord("line 17: size is no number")

    with refused("TX301", "line 17"):
        steps.emit_batch(batch, run("1"), submit)
    assert "connection refused" in caplog.text


@dataclass(frozen=True, slots=True)
class EditedJob(MemoryJob):
    """A job whose file was written anew since it was loaded."""

    written: Topology | None = None

    def now(self) -> MemoryJob:
        """Return what is written there now."""
        return MemoryJob(self.written or self.topology, code="edited")


@pytest.mark.parametrize("changed", [True, False])
def test_a_job_that_was_edited_since_is_compared_before_it_is_emitted(tmp_path: Path, changed: bool) -> None:
    """Else what another definition emitted is committed once the old one is put back, as its refusal says."""
    spout, codes, ledger = ListSpout(5), list[str](), MemoryLedger()
    job = EditedJob(word_count(spout), written=word_count(spout, count=Count("word")) if changed else word_count(spout))
    steps = Steps(job, ledger, Staging(tmp_path.as_uri()), MemoryRunLocks(), lambda *_, **__: nullcontext())
    batch = steps.initialize_transaction(run("1"))
    assert isinstance(batch, Batch)

    def submit(_: object, assignment: Assignment) -> None:
        codes.append(assignment.code)
        raise TransientError("far enough")

    with pytest.raises(SchemaMismatch if changed else TransientError, match=r"to Count of word\b|far enough"):
        steps.emit_batch(batch, run("1"), submit)
    assert codes == ([] if changed else ["edited"])
    assert ledger.batch("word_count", 1).fence == (0 if changed else 1)


CLASSES = [
    *(BadFunction, FunctionFailed, PartitionUnreadable, QuarantineFull, SparkFailed, TerminalError, TransientError),
    OutcomeUnknown,
]


def failing(tmp_path: Path, ledger: MemoryLedger, submit: Callable[[AttemptFolder], None]) -> None:
    """Emit a batch by a job whose driver does this, before spark-submit fails."""
    topology = word_count(ListSpout(5))
    steps = Steps(
        MemoryJob(topology), ledger, Staging(tmp_path.as_uri()), MemoryRunLocks(), lambda *_, **__: nullcontext()
    )
    batch = steps.initialize_transaction(run("1"))
    assert isinstance(batch, Batch)

    def submitted(folder: Any, _: object) -> None:
        submit(folder)
        raise EmissionFailed("spark-submit ended with 1")

    steps.emit_batch(batch, run("1"), submitted)


@pytest.mark.parametrize("made", CLASSES)
def test_an_error_of_sparks_driver_keeps_its_code_on_its_way(tmp_path: Path, made: type[TxbatchError]) -> None:
    """To the task, which fails by its class, to the ledger and to the run's note; the code is there once."""
    ledger, pushed = MemoryLedger(), dict[str, str]()
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))}
    failed = AirflowFailException if issubclass(made, TerminalError) else made
    with pytest.raises(failed) as error, failing_as_airflow(context):
        failing(tmp_path, ledger, lambda folder: _fail(folder, made(f"txid 1: {TransientError('no word')}")))
    told = f"{made.code} ({made.kind}): txid 1: no word"
    assert (type(error.value), str(error.value)) == (failed, told)
    head, _, whole = pushed["txbatch"].rpartition(" | ")  # of a long note the head says what to do
    note, _, following = whole.partition("; next: ")
    assert note.removeprefix("failed: ") == told
    assert (head or note).startswith(f"failed: {made.code}")
    following = following or head.partition("; next: ")[2]
    assert following.startswith("txbatch "), "the note has the command that comes next"
    assert not set(following.split()) & set(NAMES), "the names of topology, batch and job are filled in"
    with ledger.transaction() as tables:
        assert [attempt.error for attempt in tables.attempts.values()] == [told]


@pytest.mark.parametrize("says", ["no word", "TX198 (try again): no word"])
@pytest.mark.parametrize(("kind", "made"), [("terminal", Unexpected), ("transient", EmissionFailed)])
def test_an_error_without_a_code_of_this_version_keeps_its_kind(
    tmp_path: Path, kind: str, made: type[TxbatchError], says: str
) -> None:
    """As an older or a newer txbatch may have written it."""
    with pytest.raises(made) as error:
        failing(tmp_path, MemoryLedger(), lambda folder: folder.write_error(kind, says))
    assert (type(error.value), str(error.value)) == (made, f"{made.code} ({made.kind}): no word")
