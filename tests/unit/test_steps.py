"""The steps of a batch: an attempt that failed is noted as failed, with its own error."""

from __future__ import annotations

import json
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
from txbatch.storage.staging import Staging


@pytest.mark.parametrize("name", ["fence", "error"])
def test_what_a_newer_txbatch_wrote_does_not_hide_why_an_attempt_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    topology, ledger, noted = word_count(ListSpout(5)), MemoryLedger(), list[str]()
    steps = Steps(
        MemoryJob(topology), ledger, Staging(tmp_path.as_uri()), MemoryRunLocks(), lambda *_, **__: nullcontext()
    )
    batch = steps.initialize_transaction(run("1"))
    assert isinstance(batch, Batch)
    monkeypatch.setattr(ledger, "fail_attempt", lambda _, why: noted.append(why))

    def submit(folder: Any, _: object) -> None:
        Path(folder.path(f"{name}.json")).write_text(json.dumps({"format": 99}))
        raise TransientError("spark-submit ended with 1")

    with pytest.raises(TransientError, match="spark-submit ended with 1"):
        steps.emit_batch(batch, run("1"), submit)
    assert noted == ["spark-submit ended with 1"]
