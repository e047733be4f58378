"""The steps of a batch: an attempt that failed is noted as failed, with its own error."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support import ListSpout, run, word_count

from txbatch.core.errors import TransientError
from txbatch.core.transaction import Batch
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
    assert noted == ["spark-submit ended with 1"]
