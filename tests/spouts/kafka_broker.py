"""A broker of Kafka that can be read: what the mock of librdkafka lacks. Transactions that abort or stay open, compaction,
logs that are cut off, times, cleanup policies, topics that a user may not see, TLS, and logins by name and password.

The broker speaks Kafka's protocol by the classes of kafka-python, in a thread for each connection.
"""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka.protocol.admin.configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.consumer.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from spouts.kafka_partition import Partition

# Newest versions that are spoken. Produce is named, as clients fetch from nobody else.
PRODUCE = 0
VERSIONS: dict[Any, tuple[int, int]] = {
    FetchRequest: (4, 11),
    ListOffsetsRequest: (1, 7),
    MetadataRequest: (1, 12),
    SaslHandshakeRequest: (0, 1),
    ApiVersionsRequest: (0, 3),
    DescribeConfigsRequest: (1, 4),
    SaslAuthenticateRequest: (0, 1),
    OffsetForLeaderEpochRequest: (2, 4),
    FindCoordinatorRequest: (0, 2),
}
_OUT_OF_RANGE, _NO_TOPIC, _HIDDEN, _NO_GROUPS, _REFUSED = 1, 3, 29, 30, 58
_LATEST, _EARLIEST = -1, -2
_NODE = 1
# As brokers have it: a larger request ends the connection, such as the first bytes of TLS; a request before the login, too.
_LARGEST = 100 << 20
_BEFORE_LOGIN = (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest)


class Broker:
    """Topics with their partitions, and how the broker behaves."""

    def __init__(self, cluster: str = "of-tests") -> None:
        self.cluster = cluster
        self.topics = dict[str, list[Partition]]()
        self.ids = dict[str, uuid.UUID]()
        self.policies = dict[str, str]()
        self.hidden = set[str]()
        self.password: str | None = None
        self.silent = False  # fetches are answered without records
        self.bytes_at_once, self.pause = 1 << 30, 0.0  # of a fetch, and seconds before its answer
        self.mute_configs = self.hidden_configs = self.hidden_groups = False
        self.fetched = dict[str, int]()
        self.port = 0

    @property
    def brokers(self) -> str:
        """Where the broker listens."""
        return f"127.0.0.1:{self.port}"

    def create(self, topic: str, partitions: int, *, policy: str = "delete") -> list[Partition]:
        """Make a topic, with an id of its own. Return its partitions."""
        self.topics[topic] = [Partition() for _ in range(partitions)]
        self.ids[topic], self.policies[topic] = uuid.uuid4(), policy
        return self.topics[topic]

    def metadata(self, asked: Any) -> MetadataResponse:
        """Say which topics there are."""
        names = list(self.topics) if asked.topics is None else [each.name for each in asked.topics]
        here = MetadataResponse.MetadataResponseBroker(node_id=_NODE, host="127.0.0.1", port=self.port, rack=None)
        return MetadataResponse(
            brokers=[here], cluster_id=self.cluster, controller_id=_NODE, topics=[self._topic(each) for each in names]
        )

    def _topic(self, name: str) -> Any:
        of = MetadataResponse.MetadataResponseTopic
        if name in self.hidden or name not in self.topics:
            code = _HIDDEN if name in self.hidden else _NO_TOPIC
            return of(error_code=code, name=name, topic_id=uuid.UUID(int=0), is_internal=False, partitions=[])
        partitions = [
            of.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=_NODE,
                leader_epoch=log.epoch,
                replica_nodes=[_NODE],
                isr_nodes=[_NODE],
                offline_replicas=[],
            )
            for number, log in enumerate(self.topics[name])
        ]
        return of(error_code=0, name=name, topic_id=self.ids[name], is_internal=False, partitions=partitions)

    def offsets(self, asked: Any) -> ListOffsetsResponse:
        """Say where partitions begin and end, and where a moment is."""
        of = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in asked.topics:
            found = [
                of.ListOffsetsPartitionResponse(
                    partition_index=each.partition_index,
                    error_code=0,
                    leader_epoch=self.topics[topic.name][each.partition_index].epoch,
                    **self._offset(topic.name, each, stable=bool(asked.isolation_level)),
                )
                for each in topic.partitions
            ]
            topics.append(of(name=topic.name, partitions=found))
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics)

    def _offset(self, topic: str, asked: Any, *, stable: bool) -> dict[str, int]:
        log = self.topics[topic][asked.partition_index]
        if asked.timestamp == _LATEST:
            return {"offset": log.stable if stable else log.end, "timestamp": -1}
        if asked.timestamp == _EARLIEST:
            return {"offset": log.first, "timestamp": -1}
        found = log.at(asked.timestamp)
        if found is None or found.offset >= (log.stable if stable else log.end):
            return {"offset": -1, "timestamp": -1}
        return {"offset": found.offset, "timestamp": found.time}

    def epochs(self, asked: Any) -> OffsetForLeaderEpochResponse:
        """Say where the records of an epoch end."""
        of, topics = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult, []
        for topic in asked.topics:
            found = []
            for each in topic.partitions:
                epoch, end = self.topics[topic.topic][each.partition].end_of(each.leader_epoch)
                found.append(
                    of.EpochEndOffset(error_code=0, partition=each.partition, leader_epoch=epoch, end_offset=end)
                )
            topics.append(of(topic=topic.topic, partitions=found))
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    def fetch(self, asked: Any) -> FetchResponse:
        """Send records. Without records to send, the answer comes after a moment."""
        time.sleep(self.pause)
        topics, sent = [], False
        for topic in asked.topics:
            found = [self._fetched(topic.topic, each, stable=bool(asked.isolation_level)) for each in topic.partitions]
            sent = sent or any(each.records or each.error_code for each in found)
            topics.append(FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=found))
        if not sent:
            time.sleep(min(asked.max_wait_ms, 100) / 1000)
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics)

    def _fetched(self, topic: str, asked: Any, *, stable: bool) -> Any:
        of, known = FetchResponse.FetchableTopicResponse.PartitionData, topic in self.topics
        log = self.topics[topic][asked.partition] if known else Partition()
        until = log.stable if stable else log.end
        lost = not log.first <= asked.fetch_offset <= log.end
        self.fetched[topic] = self.fetched.get(topic, 0) + 1
        records = b"" if lost or self.silent else log.between(asked.fetch_offset, until, self.bytes_at_once)
        aborted = [
            of.AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first in log.aborted_in(asked.fetch_offset, until)
        ]
        return of(
            partition_index=asked.partition,
            error_code=_OUT_OF_RANGE if known and lost else 0 if known else _NO_TOPIC,
            high_watermark=log.end,
            last_stable_offset=log.stable,
            log_start_offset=log.first,
            aborted_transactions=aborted if stable else None,
            preferred_read_replica=-1,
            records=records,
        )

    def configs(self, asked: Any) -> DescribeConfigsResponse:
        """Say how topics are cleaned up."""
        of = DescribeConfigsResponse.DescribeConfigsResult
        if self.mute_configs:
            time.sleep(3600)
        results = []
        for each in asked.resources:
            policy = of.DescribeConfigsResourceResult(
                name="cleanup.policy",
                value=self.policies.get(each.resource_name),
                read_only=False,
                config_source=1,
                is_default=False,
                is_sensitive=False,
                synonyms=[],
                config_type=2,
                documentation=None,
            )
            results.append(
                of(
                    error_code=_HIDDEN if self.hidden_configs else 0,
                    error_message=None,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=[] if self.hidden_configs else [policy],
                )
            )
        return DescribeConfigsResponse(throttle_time_ms=0, results=results)

    def versions(self, _: Any) -> ApiVersionsResponse:
        """Say which requests are understood."""
        of = ApiVersionsResponse.ApiVersion
        keys = [of(api_key=each.API_KEY, min_version=low, max_version=high) for each, (low, high) in VERSIONS.items()]
        keys.append(of(api_key=PRODUCE, min_version=3, max_version=9))
        return ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0)

    def coordinator(self, asked: Any) -> FindCoordinatorResponse:
        """Say who looks after a group."""
        code = _NO_GROUPS if self.hidden_groups else 0
        here = {"node_id": _NODE, "host": "127.0.0.1", "port": self.port}
        return FindCoordinatorResponse(throttle_time_ms=0, error_code=code, error_message=None, **here)

    def handshake(self, _: Any) -> SaslHandshakeResponse:
        """Offer a login by name and password."""
        return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])

    def login(self, asked: Any) -> SaslAuthenticateResponse:
        """Compare a password."""
        given = bytes(asked.auth_bytes).split(b"\0")[-1].decode()
        right = given == self.password
        return SaslAuthenticateResponse(
            error_code=0 if right else _REFUSED,
            error_message=None if right else "Authentication failed",
            auth_bytes=b"",
            session_lifetime_ms=0,
        )

    @property
    def answers(self) -> dict[Any, Callable[[Any], Any]]:
        """The answer to each kind of request."""
        return {
            ApiVersionsRequest: self.versions,
            MetadataRequest: self.metadata,
            ListOffsetsRequest: self.offsets,
            FetchRequest: self.fetch,
            DescribeConfigsRequest: self.configs,
            SaslHandshakeRequest: self.handshake,
            SaslAuthenticateRequest: self.login,
            OffsetForLeaderEpochRequest: self.epochs,
            FindCoordinatorRequest: self.coordinator,
        }


def _serve(broker: Broker, read: Any, write: Any) -> None:
    kinds = {each.API_KEY: each for each in VERSIONS}
    logged_in = broker.password is None
    while len(head := read.read(4)) == 4:
        (size,) = struct.unpack(">i", head)
        if not 0 < size <= _LARGEST:
            return
        request = read.read(size)
        key, version = struct.unpack(">hh", request[:4])
        kind = kinds.get(key)
        if kind is None or not (logged_in or kind in _BEFORE_LOGIN):
            return
        low, high = VERSIONS[kind]
        if not low <= version <= high:
            return
        asked = kind.decode(request, version=version, header=True)
        header: RequestHeader = asked.header
        answer = broker.answers[kind](asked)
        answer.API_VERSION = version
        answer.with_header(correlation_id=header.correlation_id)
        write.write(answer.encode(header=True, framed=True))
        if getattr(answer, "error_code", 0) == _REFUSED:
            return
        logged_in = logged_in or kind is SaslAuthenticateRequest


@contextmanager
def broker(cluster: str = "of-tests", tls: ssl.SSLContext | None = None) -> Iterator[Broker]:
    """Context manager. Yield a broker on a free port of this machine, which may speak TLS."""
    made = Broker(cluster)

    class Connection(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                _serve(made, self.rfile, self.wfile)
            except OSError:
                return  # the client is gone, or no TLS begins

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, allow_reuse_address = True, True

        def get_request(self) -> tuple[socket.socket, Any]:
            connection, address = super().get_request()
            if tls:  # begins with the first read, in the connection's thread
                return tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address
            return connection, address

    with Server(("127.0.0.1", 0), Connection) as server:
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()


def login(brokers: str, password: str) -> str:
    """Return a source with a login by name and password."""
    options = {"bootstrap.servers": brokers, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    return json.dumps(options | {"sasl.username": "reader", "sasl.password": password})
