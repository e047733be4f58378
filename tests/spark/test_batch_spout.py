"""A source that cannot say again what it said is asked once in an attempt, and read once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from txbatch import BatchSpout, Count, NonTransactionalState, Topology


class Named(BatchSpout):
    fields = "word string"

    @property
    def identity(self) -> dict[str, str]:
        return {"spout": type(self).__name__}


class Queue(Named):
    """Gives each record once."""

    def __init__(self, *words: str) -> None:
        self.words = list(words)

    def emit_batch(self, spark: SparkSession, txid: int) -> DataFrame:
        words, self.words = self.words, []
        return spark.createDataFrame([(word,) for word in words], self.fields)


class Live(Named):
    """Is asked lazily, and never says the same."""

    def emit_batch(self, spark: SparkSession, txid: int) -> DataFrame:
        return spark.range(3).selectExpr("uuid() as word")


def two_states(spout: BatchSpout) -> Topology:
    topology = Topology("queue")
    grouped = topology.new_stream("in", spout).group_by("word")
    for name in ("queue", "again"):
        grouped.persistent_aggregate(NonTransactionalState(name), guarantee="at_least_once", count=Count())
    return topology


def test_a_queue_is_asked_once(emit: Callable[..., Any]) -> None:
    emitted = emit(two_states(Queue("dog", "dog", "cat")))
    assert emitted.read() == {"": 3}
    assert emitted.partials == {name: {("dog",): (2,), ("cat",): (1,)} for name in ("queue", "again")}


def test_a_live_source_is_read_once(emit: Callable[..., Any]) -> None:
    emitted = emit(two_states(Live()))
    assert emitted.read() == {"": 3}
    assert len(emitted.partials["queue"]) == 3
    assert emitted.partials["queue"] == emitted.partials["again"]


def test_a_queue_that_is_empty(emit: Callable[..., Any]) -> None:
    emitted = emit(two_states(Queue()))
    assert (emitted.read(), emitted.partials) == ({"": 0}, {"queue": {}, "again": {}})
