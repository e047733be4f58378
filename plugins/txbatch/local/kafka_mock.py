"""A cluster of Kafka for demos and tests: librdkafka's own mock, in a process of its own that obeys lines; and a producer.

The mock speaks the protocol on loopback ports and keeps topics in memory. A partition, a topic or its beginning can go.
The mock has no transactions that abort, no compaction, no times and no logins.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Cluster:
    """A running mock cluster."""

    process: subprocess.Popen[str]
    brokers: str

    def tell(self, *words: Any) -> None:
        """Have something done, such as `delete`, topic. Raise RuntimeError if the mock refuses."""
        write, read = self.process.stdin, self.process.stdout
        if write is None or read is None:
            raise RuntimeError("the mock has no pipes")
        write.write(json.dumps(words) + "\n")
        write.flush()
        if answer := json.loads(read.readline()):
            raise RuntimeError(f"the mock of Kafka refuses {words}: {answer}")

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic."""
        self.tell("create", topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic with its messages."""
        self.tell("delete", topic)

    def take_away(self, topic: str, partition: int) -> None:
        """Leave a partition without a leader."""
        self.tell("leader", topic, partition, -1)

    def give_back(self, topic: str, partition: int) -> None:
        """Give a partition a leader again."""
        self.tell("leader", topic, partition, 1)

    def forget(self, topic: str, partition: int, offset: int) -> None:
        """Retention: forget the messages before an offset."""
        self.tell("forget", topic, partition, offset)

    def produce(self, topic: str, partition: int, values: Sequence[bytes | str | None], **options: Any) -> None:
        """Append messages to a partition. Raise RuntimeError if a message is not taken."""
        self.produce_to(topic, {partition: values}, **options)

    def produce_to(self, topic: str, partitions: Mapping[int, Sequence[bytes | str | None]], **options: Any) -> None:
        """Append messages to partitions. Raise RuntimeError if a message is not taken."""
        from confluent_kafka import Producer

        failed = list[Any]()
        told = {"bootstrap.servers": self.brokers, "log_level": 0, "linger.ms": 5, "compression.type": "lz4"}
        producer = Producer(told)
        options["on_delivery"] = lambda error, _: failed.append(error) if error else None
        for partition, values in partitions.items():
            for value in values:
                producer.produce(topic, value, partition=partition, **options)
                producer.poll(0)
        if producer.flush(30) or failed:
            raise RuntimeError(f"{topic}, partitions {list(partitions)}: messages were not taken: {failed[:1]}")


@dataclass
class HeldTopic:
    """A topic of a mock. What is sent to a partition that is away is appended once the partition is back."""

    cluster: Cluster
    name: str
    held: dict[int, list[str]] = field(default_factory=dict)

    def send(self, partitions: Mapping[int, Sequence[str]]) -> None:
        """Append messages to partitions, or hold the messages."""
        for partition, messages in self.held.items():
            messages += partitions.get(partition, ())
        if there := {each: of for each, of in partitions.items() if each not in self.held}:
            self.cluster.produce_to(self.name, there)

    def take_away(self, partition: int) -> None:
        """Leave a partition without a leader."""
        self.held.setdefault(partition, [])
        self.cluster.take_away(self.name, partition)

    def give_back(self, partition: int) -> None:
        """Give a partition a leader again, and append what was held."""
        self.cluster.give_back(self.name, partition)
        self.send({partition: self.held.pop(partition, [])})


@contextmanager
def cluster(brokers: int = 3) -> Iterator[Cluster]:
    """Context manager. Yield a mock cluster, which is gone afterwards."""
    command = [sys.executable, __file__, str(brokers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Cluster(process, json.loads(process.stdout.readline() if process.stdout else ""))
        finally:
            if process.stdin:
                process.stdin.close()
            process.wait(10)


def serve(brokers: int) -> None:
    """Run the mock, and do what lines of JSON say, until the input ends."""
    import confluent_kafka

    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p

    def function(name: str, result: Any, *arguments: Any) -> Any:
        found = getattr(library, name)
        found.restype, found.argtypes = result, arguments
        return found

    new = function("rd_kafka_new", pointer, number, pointer, text, ctypes.c_size_t)
    conf_new = function("rd_kafka_conf_new", pointer)
    conf_set = function("rd_kafka_conf_set", number, pointer, text, text, text, ctypes.c_size_t)
    cluster_new = function("rd_kafka_mock_cluster_new", pointer, pointer, number)
    bootstraps = function("rd_kafka_mock_cluster_bootstraps", text, pointer)
    create = function("rd_kafka_mock_topic_create", number, pointer, text, number, number)
    delete = function("rd_kafka_mock_topic_delete", number, pointer, text)
    set_leader = function("rd_kafka_mock_partition_set_leader", number, pointer, text, ctypes.c_int32, ctypes.c_int32)
    forget = function("rd_kafka_mock_partition_delete_records", number, pointer, text, ctypes.c_int32, ctypes.c_int64)
    down = function("rd_kafka_mock_broker_set_down", number, pointer, ctypes.c_int32)
    up = function("rd_kafka_mock_broker_set_up", number, pointer, ctypes.c_int32)
    slow = function("rd_kafka_mock_broker_set_rtt", number, pointer, ctypes.c_int32, number)
    controller = function("rd_kafka_mock_set_controller_id", number, pointer, ctypes.c_int32)
    said, conf = ctypes.create_string_buffer(512), conf_new()
    conf_set(conf, b"log_level", b"0", said, 512)
    handle = new(0, conf, said, 512)
    made = cluster_new(handle, brokers)
    controller(made, 1)
    print(json.dumps(bootstraps(made).decode()), flush=True)
    for line in sys.stdin:
        what, *values = json.loads(line)
        if what in ("create", "delete", "leader", "forget"):
            values[0] = values[0].encode()
        acts: dict[str, Callable[..., int]] = {
            "create": lambda topic, partitions: create(made, topic, partitions, 1),
            "delete": lambda topic: delete(made, topic),
            "leader": lambda topic, partition, broker: set_leader(made, topic, partition, broker),
            "forget": lambda topic, partition, offset: forget(made, topic, partition, offset),
            "down": lambda broker: down(made, broker),
            "up": lambda broker: up(made, broker),
            "slow": lambda broker, milliseconds: slow(made, broker, milliseconds),
        }
        print(json.dumps(acts[what](*values)), flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
