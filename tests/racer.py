"""One step of a batch in a process of its own, to be held at a failpoint: `python racer.py URL STEP RUN TXID MAX_PENDING`.

Prints in JSON what became of it. A failpoint holds it once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from postgres_bench import Bench, words
from support import LogSpout, code, manifest_of, run, word_count

from txbatch import failpoints
from txbatch.core.batch.transaction import Batch, Restate
from txbatch.core.corrections.rebuild import Rebuild
from txbatch.core.protocol import coordinator
from txbatch.postgres.corrections.retention import Retention
from txbatch.postgres.database.engine import connect

hit = failpoints.hit


def hit_once(name: str) -> None:
    """Whoever asks again, as a plan does when the head moved, is not held again."""
    armed = os.environ.get("TXBATCH_FAILPOINTS", "").startswith(f"{name}=")
    hit(name)
    if armed:
        del os.environ["TXBATCH_FAILPOINTS"]


class Racer:
    """The steps of `postgres_bench.Bench`, with answers that can be printed."""

    def __init__(self, url: str, name: str, txid: int, max_pending: int) -> None:
        self.topology = word_count(LogSpout({"a": 1_000_000}), max_pending=max_pending)
        self.bench, self.name, self.txid = Bench(connect(url), self.topology), name, txid

    def initialize(self) -> Any:
        found = coordinator.initialize_transaction(self.bench.ledger, self.topology, run(self.name))
        if not isinstance(found, Batch):
            return type(found).__name__
        range_ = found.metadata["streams"]["words"]["partitions"]["a"]
        return [found.txid, range_["start"], range_["end"]]

    def restate(self) -> Any:
        """Of txid 1, as a run of its own."""
        asked = replace(run(self.name), restate=Restate(1, "it was wrong"))
        found = coordinator.initialize_transaction(self.bench.ledger, self.topology, asked)
        return [found.txid, found.position] if isinstance(found, Batch) else type(found).__name__

    def attempt(self) -> Any:
        return str(self.bench.ledger.start_attempt(self.batch(), run(self.name), code()).attempt)

    def manifest(self) -> Any:
        """Of the attempt that is the newest before it is held."""
        assignment, _ = self.bench.ledger.newest_attempt(self.batch())
        failpoints.hit("emit.manifest_written")
        manifest = manifest_of(self.topology, assignment, words(dog=1))
        return str(self.bench.ledger.record_manifests([(assignment, manifest)])[0].status)

    def commit(self) -> Any:
        """Of the attempt that is the newest before it is held."""
        return self.bench.commit(self.batch(), words(dog=1))

    def abort(self) -> Any:
        return str(self.bench.ledger.abort(self.topology.name, self.txid, "why").status)

    def rebuild(self) -> Any:
        """Begin one, or go on with the one that runs."""
        return self.begun().number

    def count(self) -> Any:
        """Of the rebuild that runs, the version that is the next now."""
        rebuild = self.begun()
        return self.bench.rebuilt(rebuild, words(dog=1))

    def swap(self) -> Any:
        return type(self.bench.rebuilds.swap(self.begun(), self.topology)).__name__

    def gc(self) -> Any:
        """Fold up to the txid."""
        kept = Retention(self.bench.engine)
        list(kept.fold(self.topology.name, self.txid))
        return kept.horizon(self.topology.name)

    def begun(self) -> Rebuild:
        return self.bench.rebuilds.begin(self.topology, "jobs/job.py", code("new"), "why")

    def batch(self) -> Batch:
        return self.bench.ledger.batch(self.topology.name, self.txid)


def main(url: str, step: str, name: str, txid: str, max_pending: str) -> None:
    failpoints.hit = hit_once
    racer = Racer(url, name, int(txid), int(max_pending))
    steps: dict[str, Callable[[], Any]] = {
        "initialize": racer.initialize,
        "restate": racer.restate,
        "attempt": racer.attempt,
        "manifest": racer.manifest,
        "commit": racer.commit,
        "abort": racer.abort,
        "rebuild": racer.rebuild,
        "count": racer.count,
        "swap": racer.swap,
        "gc": racer.gc,
    }
    try:
        print(json.dumps({"answer": steps[step]()}))
    except Exception as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
