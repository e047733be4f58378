"""One look at a topic: which topic it is, its partitions, and from where to where each can be read."""

from __future__ import annotations

import base64
import struct
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import PartitionUnreadable, SourceUnfit
from txbatch.spouts.topics.client import ANSWER_SECONDS, administering, in_our_words
from txbatch.spouts.topics.complaints import Said

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# What the offset of a moment is, if no record is as new.
_NONE_SO_NEW = -1
_ASKS = {"request_timeout": ANSWER_SECONDS}
_NOT_TOLD = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "_UNSUPPORTED_FEATURE")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offset of the oldest record that is kept, the offset after the newest that can be read, and the leader's epoch.

    The epoch is -1 if the brokers say none.
    """

    first: int
    end: int
    epoch: int = -1


@dataclass(frozen=True)
class Look:
    """The topic at one moment. `of` is the topic in errors; `ends` has the bounds of partitions, or the reason of an outage.

    `cluster` is the id of the cluster; "" if the brokers cannot say.
    """

    of: str
    cluster: str
    topic_id: str
    ends: Mapping[int, Bounds | PartitionUnreadable]

    def bounds(self, number: int) -> Bounds:
        """Return the bounds of a partition; raise PartitionUnreadable if the partition is away."""
        found = self.ends.get(number)
        if found is None:
            raise PartitionUnreadable(f"{self.of}: no broker lists partition {number} now; try again")
        if isinstance(found, PartitionUnreadable):
            raise found
        return found


def place_of(source: str, topic: str) -> str:
    """Return a topic as errors name the topic."""
    return f"topic {topic!r} (source {source!r})"


def name_of(topic: str, number: int, topic_id: str) -> str:
    """Return the name of a partition. A topic that is made anew has other partitions.

    >>> name_of("clicks", 7, "0VEi1Vb1TJ2TW8vFQKxNFA")
    'clicks/007@0VEi1Vb1TJ2TW8vFQKxNFA'
    """
    return f"{topic}/{number:03}@{topic_id}"


def parsed(name: str) -> tuple[int, str]:
    """Return number and topic's id of a partition's name.

    >>> parsed("clicks/007@0VEi1Vb1TJ2TW8vFQKxNFA")
    (7, '0VEi1Vb1TJ2TW8vFQKxNFA')
    """
    number, _, topic_id = name.rpartition("/")[2].partition("@")
    return int(number), topic_id


def look(source: str, given: str, topic: str, *, committed: bool) -> Look:
    """Look at a topic, in four round trips whatever the number of its partitions."""
    of = place_of(source, topic)
    with administering(source, given) as (client, said):
        topic_id, numbers = _described(client, said, topic, of)
        return Look(
            of, _cluster(client, said, of), topic_id, _ends(client, said, topic, numbers, of, committed=committed)
        )


def identity(source: str, given: str, topic: str) -> str:
    """Return the id of a topic as it is now."""
    with administering(source, given) as (client, said):
        return _described(client, said, topic, place_of(source, topic))[0]


def offsets_at(
    source: str, given: str, topic: str, numbers: Iterable[int], moment: int, *, committed: bool
) -> dict[int, int | None]:
    """Return, for each partition, the offset of the first record with a time of `moment` or later; None if there is none.

    `moment` is in milliseconds since 1970.
    """
    from confluent_kafka.admin import OffsetSpec

    of = place_of(source, topic)
    with administering(source, given) as (client, said):
        found = _listed(client, said, topic, numbers, OffsetSpec.for_timestamp(moment), of, committed=committed)
    for each in found.values():
        if isinstance(each, PartitionUnreadable):
            raise each
    return {number: None if each.offset == _NONE_SO_NEW else each.offset for number, each in found.items()}


def cleanup_policy(source: str, given: str, topic: str) -> str | None:
    """Return how the brokers clean a topic up, such as `delete` or `compact`; None if the user may not ask, or nobody can say."""
    from confluent_kafka.admin import ConfigResource, ResourceType

    with administering(source, given) as (client, said):
        (asked,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)], **_ASKS).values()
        told = _answer(asked, place_of(source, topic), said, unless=_NOT_TOLD)
        found = told and told.get("cleanup.policy")
        return None if found is None else str(found.value)


def _described(client: AdminClient, said: Said, topic: str, of: str) -> tuple[str, list[int]]:
    """Return the id of a topic and the numbers of its partitions. The topic is not made by asking, as `list_topics` may."""
    from confluent_kafka import TopicCollection

    asked = client.describe_topics(TopicCollection([topic]), **_ASKS)[topic]
    description = _answer(asked, of, said)
    topic_id = description.topic_id
    if topic_id is None or not (topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits()):
        raise SourceUnfit(f"{of}: its brokers give topics no ids; Kafka does so since 2.8")
    bits = (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
    return _id_text(*bits), sorted(each.id for each in description.partitions)


def _cluster(client: AdminClient, said: Said, of: str) -> str:
    """Return the cluster's id; "" if the brokers cannot say."""
    told = _answer(client.describe_cluster(**_ASKS), of, said, unless=("_UNSUPPORTED_FEATURE",))
    return "" if told is None else str(told.cluster_id)


def _id_text(high: int, low: int) -> str:
    """Return a topic's id as Kafka's own tools print the id.

    >>> _id_text(0, -1)
    'AAAAAAAAAAD__________w'
    """
    both = struct.pack(">qq", high, low)
    return base64.urlsafe_b64encode(both).rstrip(b"=").decode()


def _ends(
    client: AdminClient, said: Said, topic: str, numbers: Iterable[int], of: str, *, committed: bool
) -> dict[int, Bounds | PartitionUnreadable]:
    from confluent_kafka.admin import OffsetSpec

    first = _listed(client, said, topic, numbers, OffsetSpec.earliest(), of, committed=committed)
    end = _listed(client, said, topic, numbers, OffsetSpec.latest(), of, committed=committed)
    found: dict[int, Bounds | PartitionUnreadable] = {}
    for number, low in first.items():
        high = end[number]
        if isinstance(low, PartitionUnreadable):
            found[number] = low
        elif isinstance(high, PartitionUnreadable):
            found[number] = high
        else:
            found[number] = Bounds(low.offset, high.offset, -1 if high.leader_epoch is None else high.leader_epoch)
    return found


def _listed(
    client: AdminClient, said: Said, topic: str, numbers: Iterable[int], spec: Any, of: str, *, committed: bool
) -> dict[int, Any]:
    """Return what brokers say of each partition, or the reason why they do not; by one request to each broker."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(topic, number): spec for number in numbers}
    if not asked:
        return {}
    found = dict[int, Any]()
    for place, answer in client.list_offsets(asked, isolation_level=isolation, **_ASKS).items():
        try:
            found[place.partition] = said.answer(answer, of)
        except KafkaException as error:
            told = in_our_words(f"{of}, partition {place.partition}", error.args[0], said)
            if not isinstance(told, PartitionUnreadable):
                raise told from None
            found[place.partition] = told
    return found


def _answer(asked: Future[Any], of: str, said: Said, unless: Collection[str] = ()) -> Any:
    """Return what the brokers answer; None for an error with one of the names in `unless`."""
    from confluent_kafka import KafkaException

    try:
        return said.answer(asked, of)
    except KafkaException as error:
        if error.args[0].name() in unless:
            return None
        raise in_our_words(of, error.args[0], said) from None
