"""Word count as a topology: the same work as `programs/words.py`, end to end."""

import os

from txbatch import Count, FileSpout, OpaqueState, Topology, emit

topology = Topology("words")
(
    topology.new_stream("lines", FileSpout(os.environ["WORDS_FOLDER"], "*.txt"))
    .flat_map("split(line, ' ')", "word string")
    .group_by("word")
    .persistent_aggregate(OpaqueState("words", contributions=os.environ["WORDS_CONTRIBUTIONS"] == "1"), count=Count())
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
