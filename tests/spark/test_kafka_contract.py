"""A topic keeps the contract of spouts: its messages once, by the same plan again, single and together, through outages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from txbatch import KafkaSpout, OpaqueKafkaSpout
from txbatch.local.kafka_mock import Cluster, cluster
from txbatch.testing import SpoutContract


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


class TestTopic(SpoutContract):
    names = ("0", "1", "2")
    secret = "heron-umbrella-42"
    of: type[KafkaSpout] = KafkaSpout
    number = 0

    @pytest.fixture(autouse=True)
    def topic(self, brokers: Cluster, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
        self.brokers = brokers
        self.name = f"t{abs(hash(request.node.nodeid))}"
        brokers.create(self.name, len(self.names))
        options = {"bootstrap.servers": brokers.brokers, "sasl.password": self.secret}
        monkeypatch.setenv("TXBATCH_SOURCE_SHOP", json.dumps(options))

    def make(self, folder: Path) -> KafkaSpout:
        return self.of(self.name, "partition int, offset bigint, value string", source="shop", max_records=3, silence=5)

    def append(self, folder: Path, place: Any, number: int) -> None:
        values = [f"{self.number + each}" for each in range(number)]
        self.number += number
        self.brokers.produce(self.name, int(place), values)

    def take_away(self, folder: Path) -> None:
        self.brokers.take_away(self.name, 1)

    def give_back(self, folder: Path) -> None:
        self.brokers.give_back(self.name, 1)

    def make_anew(self, folder: Path) -> None:
        self.brokers.delete(self.name)
        self.brokers.create(self.name, len(self.names))
        self.append(folder, "0", 1)


class TestOpaqueTopic(TestTopic):
    of = OpaqueKafkaSpout
