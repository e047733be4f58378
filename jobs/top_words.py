"""The words that occur most, and how many words occur how often: a ranking, made of what changes in word_count."""

import os

from txbatch import Last, OpaqueState, StateSpout, Sum, Topology, emit

LEAST = int(os.environ.get("TOP_WORDS_LEAST", "100"))  # a word that occurs less often is in no list
CHANGES = "word string, count_before bigint, count_after bigint, txid bigint"

topology = Topology("top_words")
changes = topology.new_stream("changes", StateSpout("word_count", CHANGES))

# A word that is counted again, and falls below the least, leaves the list. SELECT * FROM report.top_words ORDER BY count DESC
changes.group_by("word").persistent_aggregate(
    OpaqueState("top_words"), remove=f"coalesce(count_after, 0) < {LEAST}", count=Last("count_after", "txid")
)

# How many words occur so often: a word leaves its old count, and joins its new one. A word's rank is one more than there are
# words of greater counts: SELECT 1 + sum(words) FROM report.word_ranks WHERE occurrences > 1000
(
    changes.flat_map(
        "array(named_struct('n', count_before, 'words', -1L), named_struct('n', count_after, 'words', 1L))",
        "occurrences bigint, words bigint",
    )
    .filter("occurrences is not null")
    .group_by("occurrences")
    .persistent_aggregate(OpaqueState("word_ranks"), words=Sum("words"))
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
