"""A topic is planned by offsets and read whole or not at all: outages, retention, a topic made anew, beginnings, values."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from refusals import refused
from spouts.kafka_topic import VARIABLE, StreamOfTopic

from txbatch import OpaqueKafkaSpout
from txbatch.local.kafka_mock import Cluster, cluster
from txbatch.spouts.topics import client
from txbatch.spouts.topics.look import parsed
from txbatch.spouts.topics.messages import Range


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


class Topic(StreamOfTopic):
    """A topic of the mock."""

    def __init__(self, brokers: Cluster, partitions: int) -> None:
        super().__init__()
        self.brokers = brokers
        brokers.create(self.name, partitions)

    def append(self, partition: int, values: Sequence[Any]) -> None:
        self.brokers.produce(self.name, partition, values)


@pytest.fixture
def topic(brokers: Cluster, monkeypatch: pytest.MonkeyPatch) -> Topic:
    monkeypatch.setenv(VARIABLE, brokers.brokers)
    return Topic(brokers, 2)


def test_messages_come_once_in_ranges(topic: Topic) -> None:
    topic.append(0, ["a", "b", "c"])
    topic.append(1, ["d"])
    assert topic.values(topic.plan(max_records=2)) == ["a", "b", "d"]
    topic.append(1, ["e"])
    assert topic.values(topic.plan(max_records=2)) == ["c", "e"]
    assert topic.plan(max_records=2) is None


def test_number_3_of_16_is_away_and_back(brokers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transactional spout waits; an opaque one goes on with fifteen, and has the sixteenth later."""
    monkeypatch.setenv(VARIABLE, brokers.brokers)
    topic = Topic(brokers, 16)
    brokers.produce_to(topic.name, {number: [f"{number}-{each}" for each in range(5)] for number in range(16)})
    topic.plan(OpaqueKafkaSpout)
    brokers.produce_to(topic.name, {number: ["more"] for number in range(16)})
    brokers.take_away(topic.name, 3)
    with refused("TX224", "partition 3", "LEADER_NOT_AVAILABLE"):
        topic.plan()
    plan = topic.plan(OpaqueKafkaSpout)
    assert plan is not None
    (away,) = plan["unreadable"]
    assert parsed(away)[0] == 3
    assert len(plan["partitions"]) == 15
    assert topic.values(plan) == ["more"] * 15
    brokers.give_back(topic.name, 3)
    later = topic.plan(OpaqueKafkaSpout)
    assert later is not None
    assert {parsed(name)[0] for name in later["partitions"]} == {3}
    assert topic.values(later) == ["more"]


def test_a_planned_partition_that_goes_away_is_a_hole_told_at_once(topic: Topic) -> None:
    topic.append(0, ["a"])
    topic.append(1, ["b"])
    plan = topic.plan(OpaqueKafkaSpout)
    assert plan is not None
    topic.brokers.take_away(topic.name, 1)
    holes = topic.spout(OpaqueKafkaSpout).unreadable(plan)
    assert [parsed(name)[0] for name in holes] == [1]
    topic.brokers.give_back(topic.name, 1)
    assert topic.spout(OpaqueKafkaSpout).unreadable(plan) == {}


@pytest.mark.parametrize("new", [1, 9], ids=["with fewer messages", "with more messages"])
def test_a_topic_made_anew_begins_at_its_beginning_and_what_was_unread_is_gone(topic: Topic, new: int) -> None:
    topic.append(0, ["a", "b", "c", "d", "e"])
    first = topic.plan(max_records=3)
    topic.brokers.delete(topic.name)
    with refused("TX202", topic.name):
        topic.plan()
    topic.brokers.create(topic.name, 1)
    topic.append(0, [f"new {number}" for number in range(new)])
    assert first is not None
    with refused("TX205", "made anew"):
        topic.spout().check_plan(first)
    with refused("TX205", "made anew"):
        topic.spout().count_records(*next(iter(first["partitions"].items())))
    gone = topic.plan()
    assert gone is not None
    assert [(of["start"], of["end"]) for of in gone["partitions"].values()] == [(3, 5)]
    assert all("gone" in of for of in gone["partitions"].values())
    assert len(gone["missing"]) == 2
    assert len(topic.values(topic.plan())) == new


def test_what_retention_has_taken_is_gone_and_said(topic: Topic) -> None:
    topic.append(0, list("abcdef"))
    first = topic.plan(max_records=2)
    topic.append(1, ["x"])
    topic.brokers.forget(topic.name, 0, 4)
    plan = topic.plan()
    assert plan is not None
    assert [(of["start"], of["end"], of["gone"]) for of in plan["partitions"].values()] == [(2, 4, "keeps 4 to 6")]
    assert [(of["kept"], of["seen"]) for of in plan["partitions"].values()] == [(4, 6)]
    assert topic.values(topic.plan()) == ["e", "f", "x"]
    assert first is not None
    with refused("TX205", "offset 0 is no longer kept"):
        topic.read(first)
    with refused("TX205", "keeps no offset 0"):
        topic.spout().plan_again(*next(iter(first["partitions"].items())))


def test_a_range_past_the_end_is_cut_off(topic: Topic) -> None:
    topic.append(0, ["a", "b"])
    plan = topic.plan()
    assert plan is not None
    (name,) = (name for name, of in plan["partitions"].items() if of["end"] == 2)
    with refused("TX205", "ends at 2, before 5", "cut off"):
        topic.read({"partitions": {name: {"start": 0, "end": 5}}})
    topic.offsets = {name: {"start": 0, "end": 5}}
    with refused("TX206", "went backwards"), closing(topic.spout().coordinator()) as coordinator:
        coordinator.offsets = topic.offsets  # type: ignore[attr-defined]
        coordinator.initialize_transaction(2, None, None)


def test_a_stream_that_begins_at_the_end_is_planned_once(topic: Topic) -> None:
    topic.append(0, ["before"])
    first = topic.plan(start="latest")
    assert first is not None
    assert sorted((of["start"], of["end"]) for of in first["partitions"].values()) == [(0, 0), (1, 1)]
    assert topic.plan(start="latest") is None
    topic.append(0, ["after"])
    topic.append(1, ["after, too"])
    assert topic.values(topic.plan(start="latest")) == ["after", "after, too"]


def test_a_stream_does_not_begin_at_the_end_while_a_partition_is_away(topic: Topic) -> None:
    """Else what that partition had before would count when it is back."""
    topic.brokers.take_away(topic.name, 1)
    with refused("TX224", "partition 1"):
        topic.plan(OpaqueKafkaSpout, start="latest")
    topic.brokers.give_back(topic.name, 1)


def test_many_plans_are_one_look(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic.append(0, [str(number) for number in range(400)])
    asked = list[str]()
    administering = client.administering
    monkeypatch.setattr(
        "txbatch.spouts.topics.look.administering", lambda *given: asked.append("look") or administering(*given)
    )
    spout, planned = topic.spout(max_records=1), 0
    with closing(spout.coordinator()) as coordinator, coordinator.one_look():  # type: ignore[attr-defined]
        while (plan := coordinator.initialize_transaction(1, None, None)) is not None:
            coordinator.offsets = {**coordinator.offsets, **plan["partitions"]}  # type: ignore[attr-defined]
            planned += 1
            if planned == 1:
                topic.append(1, ["later"])
    assert planned == 400
    assert len(asked) <= 5


def test_it_says_how_far_it_is_behind_and_what_is_lost(topic: Topic) -> None:
    topic.append(0, list("abcdef"))
    topic.append(1, ["x"])
    assert topic.spout().reach({}).endswith(" has 2 partitions and keeps 7 offsets")
    plan = topic.plan(max_records=2)
    assert plan is not None
    assert [(of["kept"], of.get("seen")) for of in plan["partitions"].values()] == [(0, 6), (0, None)]
    assert topic.spout().reach(topic.offsets).endswith("; lag 4, most in partition 0: 4")
    topic.brokers.take_away(topic.name, 0)
    assert topic.spout().reach(topic.offsets).endswith("; lag 0; away: 0")
    topic.brokers.give_back(topic.name, 0)
    topic.brokers.forget(topic.name, 0, 4)
    with refused("TX205", "partition 0: offsets 2 to 4 are not counted and no longer kept"):
        topic.spout().reach(topic.offsets)


def test_the_plan_of_sixteen_partitions_has_two_kilobytes(brokers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second plan, which continues the first."""
    monkeypatch.setenv(VARIABLE, brokers.brokers)
    topic = Topic(brokers, 16)
    brokers.produce_to(topic.name, {number: ["a", "b"] for number in range(16)})
    topic.plan(max_records=1)
    assert len(json.dumps(topic.plan(max_records=1))) < 2_000


def test_values_of_json(topic: Topic) -> None:
    fields = "shop string, amount decimal(12,2), at timestamp"
    topic.append(
        0,
        [
            b'{"shop": "Soho", "amount": "1.50", "at": "2026-01-01T10:00:00Z", "more": 1}',
            b'{\n"shop": null, "amount": null, "at": null}',
        ],
    )
    rows = topic.read(topic.plan(fields=fields, format="json"), fields, format="json", options={"quoted_numbers": True})
    assert [row["shop"] for row in rows] == ["Soho", None]
    assert rows[0]["at"] == datetime(2026, 1, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"no json", "is no JSON"),
        (b"[1]", "offset 1"),
        (b"", "is empty"),
        (None, "has no value"),
        (b'{"shop": 7}', "shop"),
        (b'{"other": "Soho"}', "shop"),
        (b'{"shop": "\xff"}', "offset 1"),
    ],
)
def test_a_value_that_does_not_parse_is_named_by_its_place(topic: Topic, value: Any, told: str) -> None:
    topic.append(0, [b'{"shop": "Soho"}', value])
    plan = topic.plan(fields="shop string", format="json")
    with pytest.raises(Exception, match="partition 0, offset 1") as error:
        topic.read(plan, "shop string", format="json")
    assert told in str(error.value)
    assert "take value as binary" in str(error.value)


def test_text_headers_key_and_time(topic: Topic) -> None:
    fields = "key string, value binary, timestamp timestamp, headers string"
    topic.brokers.produce(
        topic.name, 0, [b"\xff"], key="k", headers=[("a", b"1"), ("a", b"\xff")], timestamp=1_700_000_000_123
    )
    topic.append(0, [None])
    first, tombstone = topic.read(topic.plan(fields=fields), fields)
    assert (first["key"], first["value"]) == ("k", b"\xff")
    assert json.loads(first["headers"]) == [["a", "1"], ["a", {"base64": "/w=="}]]
    assert first["timestamp"] == datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert (tombstone["key"], tombstone["value"], tombstone["headers"]) == (None, None, None)


def test_a_value_that_is_no_text_is_named(topic: Topic) -> None:
    topic.append(1, ["a", b"\xff"])
    with refused("TX304", "partition 1, offset 1", "declare value binary"):
        topic.read(topic.plan())


def test_a_large_message_comes_whole(topic: Topic) -> None:
    value = "x" * 900_000
    topic.append(0, [value])
    assert topic.values(topic.plan()) == [value]


def test_python_looks_for_no_cycles_while_messages_are_read(topic: Topic) -> None:
    """A search through thousands of messages took as long as reading the messages; and reading leaves no cycles behind."""
    topic.append(0, [str(number) for number in range(2000)])
    reading = topic.spout()._reader().read(0, [Range(0, 2000)])
    gc.collect()
    assert next(reading)
    assert not gc.isenabled()
    assert sum(len(messages) for _, messages in reading) < 2000
    assert gc.isenabled()
    assert gc.collect() < 100
    given_up = topic.spout()._reader().read(0, [Range(0, 2000)])
    next(given_up)
    given_up.close()  # type: ignore[attr-defined]
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "is not known here"),
        ("kafka", "names no brokers"),
        ("{", "begins like a JSON object"),
        ('{"bootstrap.servers": ""}', "has no bootstrap.servers"),
        ('{"bootstrap.servers": "a:1", "auto.offset.reset": "earliest"}', "'auto.offset.reset', which is no option"),
        ('{"bootstrap.servers": "a:1", "plugin.library.paths": "x"}', "'plugin.library.paths', which is no option"),
        ('{"bootstrap.servers": "a:1", "security.protocol": "heron-umbrella-42"}', "refuses"),
    ],
)
def test_a_source_that_is_no_cluster(topic: Topic, monkeypatch: pytest.MonkeyPatch, given: str, told: str) -> None:
    monkeypatch.setenv(VARIABLE, given) if given else monkeypatch.delenv(VARIABLE)
    with pytest.raises(Exception, match="source 'shop'") as error:
        topic.plan()
    assert told in str(error.value)
    assert "heron" not in str(error.value)


def test_brokers_that_do_not_answer_are_tried_again(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "127.0.0.1:1")
    monkeypatch.setattr("txbatch.spouts.topics.look.ANSWER_SECONDS", 1.0)
    monkeypatch.setitem(__import__("txbatch.spouts.topics.look", fromlist=["_ASKS"])._ASKS, "request_timeout", 1.0)
    with refused("TX224", "does not answer"):
        topic.plan()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"fields": "colour string"}, "has no 'colour'"),
        ({"fields": "value int"}, "'value' is no int"),
        ({"format": "avro"}, "'avro' is no format"),
        ({"options": {"quoted_numbers": True}}, "say format='json'"),
        ({"format": "json", "options": {"quotes": True}}, "quotes"),
        ({"format": "json", "options": {"folders": "day"}}, "name folders, which messages have not"),
        ({"max_records": 0}, "max_records=0"),
        ({"start": "yesterday"}, "start='yesterday'"),
        ({"start": datetime(2026, 1, 1)}, "a datetime with a zone"),  # noqa: DTZ001
        ({"source": "Shop"}, "source 'Shop' is no name"),
    ],
)
def test_options_that_cannot_be(topic: Topic, options: dict[str, Any], told: str) -> None:
    with pytest.raises(Exception, match="TX") as error:
        topic.spout(**options)
    assert told in str(error.value)
