"""The steps of a batch: an attempt is of a job that is compared, and one that failed is noted as failed, with its own error."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import ListSpout, run, word_count

from txbatch import Count
from txbatch.core.batch.transaction import Assignment, Batch
from txbatch.core.errors import SchemaMismatch, TransientError
from txbatch.core.topology.topology import Topology
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryJob
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

    with pytest.raises(SchemaMismatch if changed else TransientError, match=r"is Count of word now|far enough"):
        steps.emit_batch(batch, run("1"), submit)
    assert codes == ([] if changed else ["edited"])
    assert ledger.batch("word_count", 1).fence == (0 if changed else 1)
