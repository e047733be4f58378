"""A topic of Kafka as a source: planning, reading against a bare consumer, and a thousand batches rebuilt. Of the mock."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from bench import extras
from bench.database import server
from bench.measure import Contestant, Figure, Stopwatch, calls_of, interleaved, noted
from bench.plan import told
from bench.results import Results
from bench.tables import PLANS, commanded
from bench.words import Words
from bench.year import txbatch
from txbatch.core.sources.spout import PartitionedCoordinator
from txbatch.local.kafka_mock import Cluster, cluster
from txbatch.settings import source_variable
from txbatch.spouts.kafka import KafkaSpout

SOURCE, TOPIC = "bench", "clicks"
PARTITIONS, MESSAGES, TASKS = 16, 100_000, 2  # the mock keeps 100,000 messages of a partition
BATCHES, EACH = 1_000, 10
FIELDS = "offset bigint, value string"
JOB = """
from txbatch import *

topology = Topology("clicks")
clicks = topology.new_stream("clicks", KafkaSpout("clicks", "value string", source="bench", max_records={records}))
clicks.group_by("value").persistent_aggregate(OpaqueState("clicks"), clicks=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""


@contextmanager
def topic(messages: int) -> Iterator[Cluster]:
    """Context manager. A topic of so many messages of a hundred bytes in each partition, which children find, too."""
    with cluster() as made, patch.dict(os.environ, {source_variable(SOURCE): made.brokers}):
        made.create(TOPIC, PARTITIONS)
        for partition in range(PARTITIONS):
            made.produce(TOPIC, partition, [f"page {number % 1000:03} {'x' * 91}" for number in range(messages)])
        yield made


def planning(section: str, results: Results) -> None:
    """One plan of sixteen partitions, and 400 of a train, with the clients that the plans need."""
    with topic(PLANS):
        runs = interleaved({"one plan": partial(_planned, 1), f"{PLANS} plans": partial(_planned, PLANS)})
        noted_too = noted(runs, "one plan", "bytes") | noted(runs, f"{PLANS} plans", "looks")
        results.add(section, runs | noted_too, PLANNING, partitions=PARTITIONS)


def _planned(number: int, watch: Stopwatch) -> None:
    spout = KafkaSpout(TOPIC, FIELDS, source=SOURCE, max_records=PLANS // number)
    coordinator = spout.coordinator()
    assert isinstance(coordinator, PartitionedCoordinator)
    looks = calls_of("txbatch.spouts.topics.look.look", watch, "looks")
    with looks, watch.timed(), coordinator.one_look():
        for _ in range(number):
            plan = coordinator.initialize_transaction(1, None, None)
            assert plan is not None
            assert len(plan["partitions"]) == PARTITIONS
            coordinator.offsets = {**coordinator.offsets, **plan["partitions"]}
    coordinator.close()
    watch.notes["bytes"] = len(json.dumps(plan))


def read(section: str, results: Results) -> None:
    """Offset and value of all messages into Spark, and by one process with the client alone."""
    what = Words.submission()
    conf = [part for name, value in what.conf.items() for part in ("--conf", f"{name}={value}")]
    with topic(MESSAGES) as made, tempfile.TemporaryDirectory(prefix="txbatch-bench.") as home:
        program = [str(extras.PROGRAMS / "topics.py"), home]
        command = [extras.spark_submit(), "--master", f"local[{TASKS}]", *conf, "--py-files", what.py_files, *program]
        runs = told(command, {**what.environment, source_variable(SOURCE): made.brokers})
        results.add(section, runs, READ, messages=PARTITIONS * MESSAGES, tasks=TASKS)


def rebuilt(section: str, results: Results) -> None:
    """A thousand committed batches of a topic, rebuilt; and one batch of the same messages."""
    with topic(BATCHES * EACH), server() as running:
        running.run("CREATE DATABASE migrated")
        txbatch(running, "migrated", "migrate")
        jobs = []
        for records in (EACH, BATCHES * EACH):
            path = running.home / f"of_{records}" / "clicks.py"
            path.parent.mkdir()
            path.write_text(JOB.format(records=records))
            jobs.append(str(path))
        many, one = jobs
        running.run("CREATE DATABASE counted TEMPLATE migrated")
        txbatch(running, "counted", "run", many, "--until-idle")
        contestants: dict[str, Contestant] = {
            "one batch": partial(commanded, running, "migrated", ["run", one]),
            "rebuild": partial(commanded, running, "counted", ["rebuild", many, "--why", "bench"]),
        }
        results.add(section, interleaved(contestants), REBUILT, batches=BATCHES, partitions=PARTITIONS)


PLANNING = [
    Figure(f"planning {PARTITIONS} partitions of a topic, s", "one plan", None, 0.15, unit=1),
    Figure(f"a plan of {PARTITIONS} partitions, bytes", "one plan, bytes", None, 2_000, unit=1),
    Figure(f"{PLANS} plans of a train, s", f"{PLANS} plans", None, unit=1),
    Figure(f"{PLANS} plans of a train, looks at the topic", f"{PLANS} plans, looks", None, 5, 1, unit=1),
]
INTO = f"{PARTITIONS * MESSAGES:,} messages"
READ = [
    Figure(f"{INTO}: a bare consumer / into Spark", "bare consumer", "KafkaSpout", 0.5, 0.8, higher=True),
    Figure(f"{INTO} into Spark / a bare consumer, CPU", "KafkaSpout, CPU", "bare consumer, CPU", 1.6, 1.3),
]
REBUILT = [
    Figure(f"{BATCHES:,} batches of a topic rebuilt / one batch of its messages", "rebuild", "one batch", 2.5, 2)
]
SECTIONS = {"a topic, planned": planning, "a topic, read": read, "a topic, rebuilt": rebuilt}
