"""Commits one staged batch of the benches' topology; prints the seconds and the most memory that this process had.

Arguments: the database, the staging area, the txid.
"""

import json
import sys
import time
from pathlib import Path

from bench import batches

from txbatch.postgres.database.engine import connect
from txbatch.postgres.ledger import PostgresLedger
from txbatch.storage import parquet
from txbatch.storage.staging import Staging


def main(url: str, staging: str, txid: str) -> None:
    """Commit."""
    ledger, defined = PostgresLedger(connect(url)), batches.topology(contributions=False)
    batch = ledger.batch(defined.name, int(txid))
    assignment, manifest = ledger.newest_attempt(batch)
    assert manifest
    folder = Staging(staging).attempt(assignment)
    began = time.perf_counter()
    assert ledger.commit(defined, batch, {"counts": parquet.read(folder, manifest.states["counts"])}).applied
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes()}))


def peak_bytes() -> int:
    """The most memory that this program had; `ru_maxrss` would count what started it, too."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmHWM"].split()[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
