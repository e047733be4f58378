"""A topic is counted once though `txbatch run` is killed at every step, beside producers; a consumer of its own agrees."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from cli_support import MAIN
from confluent_kafka import Consumer, TopicPartition
from kills import KILLED, POINTS, WAIT, Start, spark_processes
from sqlalchemy import Engine, text
from support import until

from txbatch.local.kafka_mock import Cluster, cluster

JOB = (
    WAIT
    + """
topology = Topology("clicks")
clicks = topology.new_stream("clicks", {spout}("clicks", "value string", source="events", max_records=4, silence=5)).filter(wait)
clicks.group_by("value").persistent_aggregate(OpaqueState("clicks"), clicks=Count())
"""
    + MAIN
)
SPOUTS = ["KafkaSpout", "OpaqueKafkaSpout"]
PARTITIONS = 3
_numbers = count()
pytestmark = [pytest.mark.whole, pytest.mark.timeout(600)]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with cluster() as made:
        made.create("clicks", PARTITIONS)
        monkeypatch.setenv("TXBATCH_SOURCE_EVENTS", made.brokers)
        append(made)
        yield made


def append(brokers: Cluster) -> None:
    """Two messages more in each partition, of which some have been before."""
    for partition in range(PARTITIONS):
        brokers.produce("clicks", partition, [f"page {next(_numbers) % 7}" for _ in range(2)])


def counted(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return dict(connection.execute(text("SELECT value, clicks FROM report.clicks")).tuples().all())


def told_by_a_consumer(brokers: Cluster) -> dict[str, int]:
    consumer = Consumer(
        {"bootstrap.servers": brokers.brokers, "group.id": "test", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition("clicks", number, 0) for number in range(PARTITIONS)])
    found, ended = Counter[str](), 0
    while ended < PARTITIONS:
        for message in consumer.consume(1000, 1.0):
            if message.error():
                ended += 1
            else:
                found[(message.value() or b"").decode()] += 1
    consumer.close()
    return dict(found)


@pytest.mark.parametrize("spout", SPOUTS)
def test_killed_at_every_step_each_message_counts_once(
    start: Start, write_job: Callable[[str, str], str], engine: Engine, brokers: Cluster, tmp_path: Path, spout: str
) -> None:
    """Messages come between the kills; of the opaque kind, a partition is away for two of the kills."""
    job, armed = (
        write_job("clicks.py", JOB.replace("{spout}", spout)),
        ",".join(f"{each}=kill:{tmp_path / each}" for each in POINTS),
    )
    for number, point in enumerate(POINTS):
        if spout == SPOUTS[1] and number in (2, 4):
            (brokers.take_away if number == 2 else brokers.give_back)("clicks", 1)
        killed = start("run", job, TXBATCH_FAILPOINTS=armed)
        _, error = killed.communicate()
        assert killed.returncode == KILLED, error
        assert (tmp_path / point).exists()
        if number != 3:
            append(brokers) if number not in (2,) else brokers.produce("clicks", 0, ["page 0"])
    finished = start("run", job, "--until-idle")
    _, error = finished.communicate()
    assert finished.returncode == 0, error
    assert counted(engine) == told_by_a_consumer(brokers)


def test_killed_while_messages_are_read(
    start: Start, write_job: Callable[[str, str], str], engine: Engine, brokers: Cluster, tmp_path: Path
) -> None:
    job, held = write_job("clicks.py", JOB.replace("{spout}", "KafkaSpout")), tmp_path / "held"
    running = start("run", job, "--until-idle", HELD=str(held))
    until(held.exists, "no task reads", seconds=60, every=0.02)
    os.kill(spark_processes(running)["java"].pid, signal.SIGKILL)
    held.unlink()
    running.communicate()
    append(brokers)
    again = start("run", job, "--until-idle")
    _, error = again.communicate()
    assert again.returncode == 0, error
    assert counted(engine) == told_by_a_consumer(brokers)
