"""Twenty words, one per batch, eight batches in flight; a test holds the emission of some words."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology, emit

WORDS = [f"word {number:02}" for number in range(20)]


def at_work(record: Mapping[str, str]) -> str:
    folder, word = Path(os.environ["PIPELINE_FOLDER"]), record["word"]
    (folder / f"twenty at {word}").touch()
    while (folder / f"twenty hold {word}").exists():
        time.sleep(0.05)
    return word


topology = Topology("twenty", max_pending=8)
(
    topology.new_stream("words", FixedBatchSpout("word string", 1, *WORDS))
    .map(at_work, "word string")
    .group_by("word")
    .persistent_aggregate(OpaqueState("twenty"), count=Count())
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
