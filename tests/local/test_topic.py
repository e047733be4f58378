"""The topic of the demo: known to commands while the demo runs, and obeys orders."""

from __future__ import annotations

from pathlib import Path

import pytest

from txbatch import OpaqueKafkaSpout, settings
from txbatch.local import example_sources, topic


def test_the_topic_is_known_while_the_demo_runs_and_obeys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path))
    orders = iter(["send 32", "away 3", "send 16", "away 16", "go", "back 3", "quit", "send 1"])
    playing = topic.serve(tmp_path, orders)
    begun = next(playing)
    brokers = topic.demo_topic(topic.SOURCE)
    assert brokers is not None
    assert f'{{"bootstrap.servers": "{brokers}"}}' in begun
    assert example_sources.absent(topic.SOURCE) is None
    monkeypatch.setenv(settings.source_variable(topic.SOURCE), brokers)
    spout = OpaqueKafkaSpout(topic.TOPIC, "value string", source=topic.SOURCE)
    assert next(playing) == "sent 160 clicks"
    assert next(playing) == "sent 32 clicks"
    assert spout.reach({}).endswith("has 16 partitions and keeps 192 offsets")
    assert next(playing) == "partition 3 is away"
    assert spout.reach({}).endswith("keeps 180 offsets; away: 3")
    assert next(playing).startswith("sent 16 clicks, those of partitions that are away")
    assert spout.reach({}).endswith("keeps 195 offsets; away: 3")
    assert next(playing) == "the partitions are 0 to 15"
    assert next(playing).startswith("Orders: ")
    assert next(playing) == "partition 3 is back"
    assert spout.reach({}).endswith("keeps 208 offsets")
    assert list(playing) == []
    assert topic.demo_topic(topic.SOURCE) is None
    assert example_sources.absent(topic.SOURCE) == "`txbatch demo topic`"


def test_only_the_source_of_the_example_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path))
    assert topic.demo_topic("shop") is None
    assert example_sources.absent("shop") is None
    assert example_sources.absent(None) is None
