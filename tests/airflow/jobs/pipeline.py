"""One word per batch, three batches in flight; a test holds the emit of a word, or lets it fail."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology, emit

WORDS = [f"word {number:02}" for number in range(20)]


def at_work(record: Mapping[str, str]) -> str:
    folder, word = Path(os.environ["PIPELINE_FOLDER"]), record["word"]
    (folder / f"at {word}").touch()
    while (folder / f"hold {word}").exists():
        time.sleep(0.05)
    if (folder / f"fail {word}").exists():
        raise OSError(f"{word} fails on purpose")
    return word


topology = Topology("pipeline", max_pending=3)
(
    topology.new_stream("words", FixedBatchSpout("word string", 1, *WORDS))
    .map(at_work, "word string")
    .group_by("word")
    .persistent_aggregate(OpaqueState("pipeline"), count=Count())
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
