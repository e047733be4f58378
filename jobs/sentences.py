"""Word count of three sentences, one per batch: the classic example."""

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology, emit

topology = Topology("sentences")
(
    topology.new_stream(
        "sentences",
        FixedBatchSpout("sentence string", 1, "how are you", "nice to meet you", "what a good day"),
    )
    .flat_map("split(sentence, ' ')", "word string")
    .group_by("word")
    .persistent_aggregate(OpaqueState("sentences"), count=Count())
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
