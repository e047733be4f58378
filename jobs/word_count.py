"""Word count of the text files in a folder: words are ASCII letters and apostrophes of the lower-cased line."""

import os
from pathlib import Path

from txbatch import Count, FileSpout, OpaqueState, Topology, emit

CORPUS = os.environ.get("WORD_COUNT_FOLDER") or Path(__file__).resolve().parents[1] / ".txbatch" / "demo" / "corpus"

topology = Topology("word_count")
(
    topology.new_stream("lines", FileSpout(CORPUS, "*.py", files_per_batch=300))
    .flat_map('regexp_extract_all(lower(line), "[a-z\']+", 0)', "word string")
    .group_by("word")
    .persistent_aggregate(OpaqueState("word_count"), count=Count())
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
