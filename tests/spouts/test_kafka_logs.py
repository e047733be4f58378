"""Ranges of a topic are read as brokers keep records: transactions, compaction, logs that are cut off, silence, logins."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest
from refusals import refused
from spouts.kafka_broker import Broker, broker, login
from spouts.kafka_partition import Partition
from spouts.kafka_topic import VARIABLE, StreamOfTopic

from txbatch import KafkaSpout, OpaqueKafkaSpout
from txbatch.spouts.topics import look
from txbatch.spouts.topics.messages import Range

SPOUTS = [KafkaSpout, OpaqueKafkaSpout]
SECRET = "heron-umbrella-42"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with broker() as made:
        yield made


class Log(StreamOfTopic):
    """A topic of one partition."""

    def __init__(self, kafka: Broker, policy: str) -> None:
        super().__init__()
        self.kafka, self.policy = kafka, policy
        self.partition = self.create()

    def create(self) -> Partition:
        (self.partition,) = self.kafka.create(self.name, 1, policy=self.policy)
        return self.partition

    def next(self, of: type[KafkaSpout] = KafkaSpout, **options: Any) -> list[str]:
        """Plan the next batch, read the batch, and take it for committed."""
        plan = self.plan(of, **options)
        return [row["value"] for row in self.read(plan, **options)]


@pytest.fixture
def log(kafka: Broker, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Log:
    monkeypatch.setenv(VARIABLE, kafka.brokers)
    return Log(kafka, getattr(request, "param", "delete"))


def test_records_of_aborted_transactions_do_not_count(log: Log) -> None:
    log.partition.append(b"a")
    log.partition.append(b"lost", b"lost, too", transaction=5)
    log.partition.append(b"between")
    log.partition.finish(5, commit=False)
    log.partition.append(b"kept", transaction=6)
    log.partition.finish(6, commit=True)
    assert log.next() == ["a", "between", "kept"]
    assert log.next() == []


def test_an_open_transaction_ends_the_range_until_it_ends(log: Log) -> None:
    log.partition.append(b"a")
    log.partition.append(b"open", transaction=5)
    log.partition.append(b"behind")
    assert log.next() == ["a"]
    assert log.next() == []
    log.partition.finish(5, commit=True)
    assert log.next() == ["open", "behind"]


def test_uncommitted_messages_count_if_the_spout_says_so(log: Log) -> None:
    log.partition.append(b"a")
    log.partition.append(b"aborted", transaction=5)
    log.partition.finish(5, commit=False)
    log.partition.append(b"open", transaction=6)
    assert log.next(uncommitted=True) == ["a", "aborted", "open"]


@pytest.mark.parametrize("of", SPOUTS)
def test_a_range_of_markers_alone_is_known_to_have_no_message(log: Log, of: type[KafkaSpout]) -> None:
    """Else the batch would be refused for good, as a range that gives no records."""
    log.partition.append(b"aborted", transaction=5)
    log.partition.finish(5, commit=False)
    plan = log.plan(of)
    assert plan is not None
    ((name, range_),) = plan["partitions"].items()
    assert (range_["start"], range_["end"]) == (0, 2)
    assert log.spout(of).count_records(name, range_) == 0


def test_a_tail_without_records_is_no_reason_to_wait(log: Log) -> None:
    """The newest message was compacted away, or is a marker: no message comes at the end of the range, ever."""
    log.partition.append(b"a", b"b", b"c")
    log.partition.remove([2])
    log.partition.finish(5, commit=True)
    assert log.next(silence=60) == ["a", "b"]


@pytest.mark.parametrize("log", ["compact", "compact,delete"], indirect=True)
def test_a_compacted_topic_is_read_by_the_opaque_spout_alone(log: Log) -> None:
    log.partition.append(b"a", b"b", b"c")
    with refused("TX220", "is compacted", "OpaqueKafkaSpout"):
        log.plan()
    plan = log.plan(OpaqueKafkaSpout)
    assert plan is not None
    assert [row["value"] for row in log.read(plan)] == ["a", "b", "c"]
    log.partition.remove([0, 1])
    assert [row["value"] for row in log.read(plan)] == ["c"]
    with refused("TX205", "is compacted", "fewer messages"):
        log.spout(OpaqueKafkaSpout).plan_again(*next(iter(plan["partitions"].items())))


def test_a_topic_whose_policy_nobody_answers_for_is_not_planned(
    log: Log, kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.partition.append(b"a")
    monkeypatch.setitem(look._ASKS, "request_timeout", 2.0)
    kafka.mute_configs = True
    with refused("TX224", "does not answer"):
        log.plan()
    kafka.mute_configs = False
    kafka.hidden_configs = True
    assert log.next() == ["a"]
    kafka.hidden_configs = False


def test_a_topic_on_another_cluster_is_refused_until_it_is_accepted(
    log: Log, kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror has copies of what is counted, in a topic that looks as if it was made anew."""
    log.partition.append(b"a")
    assert log.next() == ["a"]
    with broker("mirror") as mirror:
        (copied,) = mirror.create(log.name, 1)
        copied.append(b"a")
        monkeypatch.setenv(VARIABLE, mirror.brokers)
        with refused("TX221", "of-tests", "mirror", "accept='mirror'"):
            log.plan()
        assert log.next(accept="mirror") == ["a"]
        copied.append(b"b")
        assert log.next() == ["b"]


def test_a_user_without_a_right_to_groups_reads_all_the_same(log: Log, kafka: Broker) -> None:
    log.partition.append(b"a", b"b")
    kafka.hidden_groups = True
    time.sleep(0.1)
    assert log.next() == ["a", "b"]
    kafka.hidden_groups = False


def test_a_log_that_is_cut_off_is_refused(log: Log) -> None:
    log.partition.append(b"a", b"b", b"c", b"d")
    plan = log.plan()
    log.partition.cut_off(2)
    with refused("TX205", "ends at 2, before 4", "cut off"):
        log.read(plan, silence=1)
    with refused("TX206", "went backwards"):
        log.plan()
    with refused("TX206", "is counted up to 4 and ends at 2"):
        log.spout().reach(log.offsets)


def test_a_log_that_is_cut_off_and_grows_again_is_refused(log: Log) -> None:
    """Other messages have taken offsets that are counted; the epoch of the leader alone tells."""
    log.partition.append(b"a", b"b", b"c", b"d")
    log.plan()
    log.partition.cut_off(2)
    log.partition.append(b"other", b"other", b"new")
    with refused("TX206", "cut off below offset 4"):
        log.read(log.plan())


def test_an_election_that_loses_nothing_is_no_reason_to_stop(log: Log) -> None:
    log.partition.append(b"a", b"b")
    assert log.next() == ["a", "b"]
    for number in range(3):
        log.partition.epoch += 1
        log.partition.append(f"{number}".encode())
        assert log.next() == [f"{number}"]


def test_a_log_that_ends_too_early_for_a_moment_is_waited_for(log: Log) -> None:
    """As one is whose new leader learns late how far the log goes."""
    log.partition.append(b"a", b"b", b"c")
    plan = log.plan()
    log.partition.end = 2
    later = threading.Timer(1.5, setattr, (log.partition, "end", 3))
    later.start()
    assert [row["value"] for row in log.read(plan, silence=10)] == ["a", "b", "c"]
    later.join()


def test_a_long_transaction_that_was_aborted_is_passed_though_no_message_comes(log: Log, kafka: Broker) -> None:
    """The broker sends all of it; the client drops all of it."""
    log.partition.append(b"before")
    for _ in range(60):
        log.partition.append(b"x" * 10_000, transaction=5)
    log.partition.finish(5, commit=False)
    log.partition.append(b"after")
    kafka.bytes_at_once, kafka.pause = 30_000, 0.2
    assert log.next(silence=2) == ["before", "after"]
    kafka.bytes_at_once, kafka.pause = 1 << 30, 0.0


def test_a_range_that_lies_behind_the_end_is_refused(log: Log) -> None:
    log.partition.append(b"a", b"b", b"c", b"d")
    log.plan(max_records=2)
    plan = log.plan(max_records=2)
    log.partition.cut_off(1)
    with refused("TX206", "cut off below offset 2"):
        log.read(plan)


def test_a_range_below_what_is_kept_is_refused_and_never_begins_elsewhere(log: Log) -> None:
    log.partition.append(b"a", b"b", b"c", b"d")
    plan = log.plan()
    log.partition.forget(2)
    with refused("TX205", "offset 0 is no longer kept"):
        log.read(plan)


def test_a_broker_that_sends_nothing_is_tried_again(log: Log, kafka: Broker) -> None:
    log.partition.append(b"a", b"b")
    plan = log.plan()
    kafka.silent = True
    with refused("TX201", "nothing came for 1 s at offset 0 of 2"):
        log.read(plan, silence=1)
    kafka.silent = False
    assert len(log.read(plan)) == 2


def test_a_stream_may_begin_at_a_time(log: Log) -> None:
    """Asked once: what comes afterwards with an older time counts."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    at = int(noon.timestamp()) * 1000
    log.partition.append(b"before", time=at - 1)
    log.partition.append(b"at noon", time=at)
    assert log.next(start=noon) == ["at noon"]
    log.partition.append(b"late", time=at - 1)
    assert log.next(start=noon) == ["late"]


def test_a_stream_may_begin_at_a_time_that_is_yet_to_come(log: Log) -> None:
    start = datetime(2100, 1, 1, tzinfo=UTC)
    log.partition.append(b"before", time=1)
    assert log.next(start=start) == []
    log.partition.append(b"also before", time=2)
    assert log.next(start=start) == []
    log.partition.append(b"then", time=int(start.timestamp()) * 1000)
    assert log.next(start=start) == ["then"]


def test_a_time_behind_an_open_transaction_begins_there_if_uncommitted_messages_count(log: Log) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    at = int(noon.timestamp()) * 1000
    log.partition.append(b"before", time=at - 1)
    log.partition.append(b"open", time=at, transaction=5)
    log.partition.append(b"later", time=at + 1)
    assert log.next(start=noon) == []
    assert log.next(start=noon, uncommitted=True) == ["open", "later"]


def test_ranges_of_several_batches_are_read_through_and_each_has_its_messages(log: Log) -> None:
    """By one client; also where a range has no message, and where ranges do not follow each other."""
    log.partition.append(*(f"{number}".encode() for number in range(30)))
    log.partition.remove([*range(10, 20), 25])
    reader = log.spout()._reader()
    ranges = [Range(*each) for each in ((0, 5), (5, 10), (10, 12), (12, 19), (19, 21), (23, 26), (26, 30))]
    found = {at: list[int]() for at in range(len(ranges))}
    for shares, messages in reader.read(0, ranges):
        left = iter(messages)
        for at, many in shares:
            found[at] += [int(each.value() or b"") for each in islice(left, many)]
        assert not list(left)
    kept = {*range(30)} - {*range(10, 20), 25}
    assert found == {at: sorted(kept & {*range(each.start, each.end)}) for at, each in enumerate(ranges)}
    with refused("TX205", "ends at 30, before 31"):
        list(log.spout(silence=1)._reader().read(0, [Range(0, 29), Range(29, 31)]))


def test_a_message_of_twenty_megabytes_comes_whole(log: Log) -> None:
    log.partition.append(b"a", b"x" * 20_000_000, b"b")
    assert [len(each) for each in log.next()] == [1, 20_000_000, 1]


def test_a_topic_that_the_user_may_not_see_is_named(log: Log, kafka: Broker) -> None:
    kafka.hidden.add(log.name)
    with refused("TX220", log.name, "TOPIC_AUTHORIZATION_FAILED", "Describe"):
        log.plan()


def test_a_topic_made_anew_while_it_is_read_is_refused_at_the_end(log: Log) -> None:
    """The old range has records of the new topic; the id alone tells."""
    log.partition.append(b"old", b"old")
    plan = log.plan()
    log.create().append(b"new", b"new", b"new")
    assert plan is not None
    assert [row["value"] for row in log.read(plan)] == ["new", "new"]
    with refused("TX205", "made anew"):
        log.spout()._check_topic(plan["partitions"])


def test_a_login_by_password(log: Log, kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right one reads; a wrong one is refused without being shown."""
    log.partition.append(b"a")
    monkeypatch.setitem(look._ASKS, "request_timeout", 3.0)
    kafka.password = SECRET
    monkeypatch.setenv(VARIABLE, login(kafka.brokers, SECRET))
    assert log.next() == ["a"]
    monkeypatch.setenv(VARIABLE, login(kafka.brokers, "ibis-lantern-17"))
    with refused("TX820", "source 'shop'", "refuses the login") as error:
        log.plan()
    assert "ibis" not in str(error.value)
    kafka.password = None
