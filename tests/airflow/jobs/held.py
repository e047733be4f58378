"""A topology of one word a batch: a test holds its planning, its emission and its success, each in the middle of its task."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology


def held(topology: str, work: str) -> None:
    """Tell the test that the work has begun, and stay in it as long as the test wants."""
    folder = Path(os.environ["PIPELINE_FOLDER"])
    (folder / f"{topology} at {work}").touch()
    while (folder / f"{topology} hold {work}").exists():
        time.sleep(0.05)


class HeldSpout(FixedBatchSpout):
    """One word, for the topology of this name."""

    def __init__(self, topology: str) -> None:
        super().__init__("word string", 1, "word")
        self.of = topology

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        held(self.of, "initialize_transaction")
        return super().initialize_transaction(txid, prev_metadata, curr_metadata)

    def success(self, txid: int) -> None:
        held(self.of, "success")


def held_topology(spout: HeldSpout) -> Topology:
    """Return the topology that counts the word."""
    name = spout.of

    def at_work(record: Mapping[str, str]) -> str:
        held(name, "emit_batch")
        return record["word"]

    topology = Topology(name)
    words = topology.new_stream("words", spout).map(at_work, "word string")
    words.group_by("word").persistent_aggregate(OpaqueState(name), count=Count())
    return topology
