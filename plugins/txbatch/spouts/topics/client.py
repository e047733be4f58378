"""Clients of Kafka's brokers: their options, and errors that show no credentials."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import (
    InvalidSetting,
    LoginRefused,
    PackageMissing,
    PartitionUnreadable,
    SourceAway,
    SourceMissing,
    SourceUnfit,
    TxbatchError,
)
from txbatch.spouts.topics.complaints import Said, refusal_of, refused_option

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

# Seconds in which brokers have to answer.
ANSWER_SECONDS = 15.0
# How a source may say what its clients connect with; what decides which records come is none of these.
_ALLOWED = re.compile(
    r"bootstrap\.servers|security\.protocol|sasl\..+|ssl\..+|enable\.ssl\..+|socket\..+|broker\.address\.family|client\.(?:id|rack|dns\.lookup)|"
    r"(?:fetch\.)?message\.max\.bytes|receive\.message\.max\.bytes|connections\.max\.idle\.ms|metadata\.max\.age\.ms"
)
_HOSTS = re.compile(r"[^\s,/@]+:\d+(?:,[^\s,/@]+:\d+)*")
# No group is joined: offsets are in the ledger. A client must name one all the same.
_GROUP = "txbatch"
# Memory of a consumer; the fetcher looks again after a moment, where it would wait for a second.
_OF_READERS = {
    "group.id": _GROUP,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": 65_536,
    "fetch.queue.backoff.ms": 10,
}
# Names of errors of the client, by what a person has to do.
_RIGHTS = {"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"}
# Brokers that are lost, or look for a leader: an outage, which passes by itself.
_AWAY = {
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT"),
    *("NETWORK_EXCEPTION", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE"),
    *("NOT_LEADER_FOR_PARTITION", "PREFERRED_LEADER_NOT_AVAILABLE", "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
    *("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE", "LISTENER_NOT_FOUND", "NOT_CONTROLLER"),
}
_NO_TOPIC = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_NOENT", "UNKNOWN_TOPIC_ID"}


def options_of(source: str, given: str) -> dict[str, Any]:
    """Return the options of a source's clients, from `host:port,host:port` or a JSON object of librdkafka's options.

    Raise InvalidSetting, which shows no value, for an option that is none of a connection.
    """
    if not given.lstrip().startswith("{"):
        if not _HOSTS.fullmatch(given.strip()):
            raise InvalidSetting(
                f"source {source!r} names no brokers of Kafka; write host:port,host:port, or a JSON object with bootstrap.servers"
            )
        return {"bootstrap.servers": given.strip()}
    try:
        found = json.loads(given)
    except ValueError:
        raise InvalidSetting(f"source {source!r} begins like a JSON object and is none; mend its text") from None
    for name in found:
        if not _ALLOWED.fullmatch(name):
            raise InvalidSetting(
                f"source {source!r} sets {name!r}, which is no option of a connection; leave it out: the spout says what is read"
            )
    if not found.get("bootstrap.servers"):
        raise InvalidSetting(
            f"source {source!r} has no bootstrap.servers; add them, such as broker-1:9092,broker-2:9092"
        )
    return dict(found)


@contextmanager
def administering(source: str, given: str) -> Iterator[tuple[AdminClient, Said]]:
    """Context manager. Yield a client that asks for topics and offsets; no topic is made by asking."""
    check_installed()
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    options = options_of(source, given)
    said = Said(options)
    try:
        told: dict[str, Any] = {"log_level": 0, "error_cb": said}
        said.client = AdminClient(options | told)
        yield said.client, said
    except KafkaException as error:
        raise in_our_words(f"source {source!r}", error.args[0], said) from None
    finally:
        said.client = None  # else each holds the other, and connections stay open


@contextmanager
def consuming(
    of: str, options: Mapping[str, Any], *, committed: bool, told: Callable[[str], None]
) -> Iterator[tuple[Consumer, Said]]:
    """Context manager. Yield a consumer, which joins no group and stores no offset. `told` gets statistics each second."""
    check_installed()
    from confluent_kafka import Consumer, KafkaException

    isolation = {"isolation.level": "read_committed" if committed else "read_uncommitted"}
    said = Said(options)
    try:
        calls = {"error_cb": said, "stats_cb": told, "statistics.interval.ms": 1000}
        quiet = {"allow.auto.create.topics": False, "log_level": 0}
        consumer = Consumer({**options, **_OF_READERS, **isolation, **quiet, **calls})
        try:
            yield consumer, said
        finally:
            consumer.close()
    except KafkaException as error:
        raise in_our_words(of, error.args[0], said) from None


def in_our_words(of: str, error: Any, said: Said | None = None) -> TxbatchError:
    """Return the error for a failed request, by the error's name."""
    name = error.name() if hasattr(error, "name") else "_FAIL"
    text = error.str() if hasattr(error, "str") else ""
    seen = {name, *(said.names() if said else ())}
    if refusal := refusal_of(name, text) or (said and said.refusal):
        return LoginRefused(f"{of} {refusal}")
    if found := seen & _RIGHTS:
        return SourceUnfit(f"{of}: {min(found)}: allow the user to Describe and Read the topic")
    if name in _NO_TOPIC:
        return SourceMissing(
            f"{of} is not there, or may not be seen ({name}); create it, or allow the user to Describe it"
        )
    if name == "_INVALID_ARG":
        return InvalidSetting(
            f"{of} has an option that the client of Kafka refuses{refused_option(text)}; mend its options"
        )
    if name not in _AWAY:
        return PartitionUnreadable(f"{of} cannot be read now ({name}); try again")
    return SourceAway(f"{of} does not answer ({name}); try again")


def check_installed() -> None:
    """Raise PackageMissing if the client of Kafka is not installed."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise PackageMissing(
            "a topic of Kafka needs confluent-kafka, which is not installed: pip install 'txbatch[kafka]'"
        ) from None
