"""A user's own combiner that keeps what Count, Sum and Max do; in a module of its own, which Spark's workers import."""

from __future__ import annotations

from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator


class Tally(CombinerAggregator):
    """How many numbers there are, their sum, and the greatest; reports show the sum."""

    partial, result = "number bigint, total bigint, greatest bigint", "bigint"

    def init(self, value: Any) -> Any:
        return None if value is None else (1, value, value)

    def combine(self, left: Any, right: Any) -> Any:
        return left[0] + right[0], left[1] + right[1], max(left[2], right[2])

    def finish(self, partial: Any) -> Any:
        return partial[1]
