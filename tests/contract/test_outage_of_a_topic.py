"""The outage of a partition of Kafka (R12, R13), a topic made anew, and retention (R14); by the messages, on both ledgers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from refusals import refused
from support import manifest_of, word_count

from txbatch import KafkaSpout, OpaqueKafkaSpout
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.transaction import Batch
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.local.kafka_mock import Cluster, cluster
from txbatch.spouts.topics.columns import Columns
from txbatch.spouts.topics.look import parsed
from txbatch.spouts.topics.messages import Range

PARTITIONS = 16
_numbers = count(1)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


class Story:
    """A topic whose words are the partitions' numbers: the count of a word is how many messages of a partition count."""

    def __init__(self, backing: Any, brokers: Cluster, of: type[KafkaSpout]) -> None:
        self.backing, self.brokers, self.topic = backing, brokers, f"story-{next(_numbers)}"
        self.spout = of(self.topic, "word string", source="shop", format="json", silence=2)
        self.topology = word_count(self.spout)
        self.sent = Counter[str]()
        brokers.create(self.topic, PARTITIONS)

    def send(self, *away: int) -> None:
        """Two messages for each partition but those that are away."""
        there = set(range(PARTITIONS)) - {*away}
        self.brokers.produce_to(self.topic, {each: [f'{{"word": "{each}"}}'] * 2 for each in there})
        self.sent.update({str(each): 2 for each in there})

    def plan(self, run: str) -> Any:
        return self.backing.initialize(self.topology, run)

    def count(self, batch: Batch, run: str) -> None:
        """One attempt that reads what is there, and the commit."""
        assignment = self.backing.attempt(batch, run)
        planned = batch.metadata["streams"]["words"]
        holes = dict(self.spout.unreadable(planned)) if self.spout.leaves_out else {}
        self.spout.check_plan(planned)
        found = {name: self._words(name, of) for name, of in planned["partitions"].items() if name not in holes}
        read = {name: ReadPartition(len(words), str(len(words))) for name, words in found.items()}
        words = Counter(word for each in found.values() for word in each)
        partials = {"word_count": [((word,), (number,)) for word, number in words.items()]}
        changes = {"streams": {"words": read}, "unreadable": {"words": holes} if holes else {}}
        manifest = manifest_of(self.topology, assignment, partials, **changes)
        self.backing.ledger.record_manifests([(assignment, manifest)])
        assert self.backing.commit(self.topology, batch, partials).applied
        self.backing.ledger.success("word_count", batch.txid)

    def _words(self, name: str, of: Any) -> list[str]:
        columns = Columns(self.spout._of, self.spout._parsed, "json", self.spout.options)
        found = self.spout._reader().read(parsed(name)[0], [Range(of["start"], of["end"])])
        return [row["word"] for _, messages in found for row in columns.batch(messages).to_pylist()]

    def counted(self) -> dict[str, int]:
        return {key[0]: number for key, (number, _) in self.backing.state("word_count").items()}


@pytest.fixture
def environment(brokers: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("TXBATCH_SOURCE_SHOP", brokers.brokers)
    return brokers


@pytest.mark.rule("R13")
def test_the_opaque_kind_goes_on_with_fifteen_and_has_the_sixteenth_later(backing: Any, environment: Cluster) -> None:
    story = Story(backing, environment, OpaqueKafkaSpout)
    story.send()
    story.count(story.plan("1"), "1")
    story.send()
    second = story.plan("2")
    environment.take_away(story.topic, 3)
    story.count(second, "2")
    assert story.counted() == {**story.sent, "3": 2}
    for run in ("3", "4"):
        story.send(3)
        story.count(story.plan(run), run)
    assert story.counted() == {**story.sent, "3": 2}
    environment.give_back(story.topic, 3)
    story.send()
    story.count(story.plan("5"), "5")
    assert story.counted() == story.sent == {**dict.fromkeys(map(str, range(16)), 10), "3": 6}
    assert isinstance(story.plan("6"), NothingNew)


@pytest.mark.rule("R12")
def test_the_transactional_kind_waits_until_the_partition_is_back(backing: Any, environment: Cluster) -> None:
    story = Story(backing, environment, KafkaSpout)
    story.send()
    first = story.plan("1")
    environment.take_away(story.topic, 3)
    with refused("TX201", "partition 3"):
        story.count(first, "1")
    assert story.counted() == {}
    environment.give_back(story.topic, 3)
    story.count(story.plan("1"), "1")
    assert story.counted() == story.sent
    environment.take_away(story.topic, 3)
    story.send(3)
    with refused("TX224", "partition 3"):
        story.plan("2")
    environment.give_back(story.topic, 3)
    story.count(story.plan("2"), "2")
    assert story.counted() == story.sent


@pytest.mark.rule("R14")
@pytest.mark.parametrize("of", [KafkaSpout, OpaqueKafkaSpout])
def test_a_topic_made_anew_loses_nothing_in_silence_and_doubles_nothing(
    backing: Any, environment: Cluster, of: type[KafkaSpout]
) -> None:
    """A plan of the old topic is refused; once given up, the new one begins at its beginning."""
    story = Story(backing, environment, of)
    story.send()
    story.count(story.plan("1"), "1")
    story.send()
    stuck = story.plan("2")
    environment.delete(story.topic)
    environment.create(story.topic, PARTITIONS)
    story.send()
    with refused("TX205", "made anew"):
        story.count(stuck, "2")
    backing.ledger.skip("word_count", stuck.txid, "made anew")
    assert story.counted() == dict.fromkeys(story.sent, 2)
    story.count(story.plan("3"), "3")
    assert story.counted() == dict.fromkeys(story.sent, 4)
    assert isinstance(story.plan("4"), NothingNew)


@pytest.mark.rule("R14")
def test_what_retention_has_taken_is_given_up_by_a_txid(backing: Any, environment: Cluster) -> None:
    story = Story(backing, environment, KafkaSpout)
    story.send()
    story.count(story.plan("1"), "1")
    story.send()
    story.send()
    environment.forget(story.topic, 3, 4)
    gone = story.plan("2")
    (range_,) = gone.metadata["streams"]["words"]["partitions"].values()
    assert (range_["start"], range_["end"]) == (2, 4)
    backing.ledger.skip("word_count", gone.txid, "retention")
    story.count(story.plan("3"), "3")
    assert story.counted() == {**story.sent, "3": story.sent["3"] - 2}
