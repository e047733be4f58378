"""A topic is read by TLS, with a client's certificate, and by a login over TLS; what is wrong is told soon, and no secret is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from spouts.kafka_broker import Broker, broker
from spouts.kafka_tls import Authority, in_files
from spouts.kafka_topic import VARIABLE, StreamOfTopic

from txbatch.core.errors import TransientError
from txbatch.spouts.topics import client, complaints, look, messages
from txbatch.spouts.topics.messages import Range, TopicReader

SECRET = "heron-umbrella-42"
LONG_AGO = {"not_before": datetime(2019, 1, 1, tzinfo=UTC), "not_after": datetime(2020, 1, 1, tzinfo=UTC)}
# All are far below the 15 s in which brokers have to answer, also on a slow machine.
SOON = 10.0


@dataclass(frozen=True)
class Shop:
    """Brokers of all kinds with the same topic, and who signed their certificates."""

    authority: Authority
    stranger: Authority
    brokers: dict[str, Broker]

    def options(self, kind: str, protocol: str | None = "SSL", **options: Any) -> dict[str, Any]:
        """Return the options of a client that trusts the authority."""
        told = {"bootstrap.servers": self.brokers[kind].brokers, "ssl.ca.pem": self.authority.pem}
        return told | ({"security.protocol": protocol} if protocol else {}) | options


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (complaints, messages):
        monkeypatch.setattr(place, "GRACE_SECONDS", 0.5)


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    ours = Authority()
    kinds = {
        "plain": None,
        "tls": ours.context(),
        "asks": ours.context(asks=True),
        "login": ours.context(),
        "over": ours.context(**LONG_AGO),
        "named": ours.context(of="kafka.example"),
    }
    with ExitStack() as stack:
        brokers = {kind: stack.enter_context(broker(tls=tls)) for kind, tls in kinds.items()}
        for each in brokers.values():
            (partition,) = each.create("clicks", 1)
            partition.append(b"home", b"cart")
        brokers["login"].password = SECRET
        yield Shop(ours, Authority(), brokers)


def login(password: str = SECRET, mechanism: str = "PLAIN") -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.username": "reader", "sasl.password": password}


class Clicks(StreamOfTopic):
    """The stream of the topic that all brokers have."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "clicks"


def without_none(options: dict[str, Any], of: dict[str, Any]) -> dict[str, Any]:
    """Return options with others; one that is None is left out."""
    return {name: value for name, value in (options | of).items() if value is not None}


READ = {
    "by an authority of its own": ("tls", "SSL", {}),
    "by the name in small letters": ("tls", "ssl", {}),
    "without looking at the certificate": ("over", "SSL", {"enable.ssl.certificate.verification": False}),
    "by a login": ("login", "SASL_SSL", login()),
}


@pytest.mark.parametrize("files", [False, True], ids=["text", "files"])
@pytest.mark.parametrize("case", READ)
def test_a_topic_is_read_by_tls(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str, files: bool
) -> None:
    kind, protocol, more = READ[case]
    options = shop.options(kind, protocol, **more)
    monkeypatch.setenv(VARIABLE, json.dumps(in_files(options, tmp_path) if files else options))
    topic = Clicks()
    assert topic.values(topic.plan()) == ["cart", "home"]


@pytest.mark.parametrize("password", ["", SECRET], ids=["key", "encrypted key"])
@pytest.mark.parametrize("files", [False, True], ids=["text", "files"])
def test_a_topic_is_read_with_a_certificate_of_the_client(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: bool, password: str
) -> None:
    options = shop.options("asks", **shop.authority.client(password))
    monkeypatch.setenv(VARIABLE, json.dumps(in_files(options, tmp_path) if files else options))
    topic = Clicks()
    assert topic.values(topic.plan()) == ["cart", "home"]


TRUST = ("TX820", "certificate that is not trusted", "ssl.ca.location or ssl.ca.pem", "bootstrap.servers")
ASKS = ("TX820", "asks for a client certificate", "ssl.key")
LOGIN = ("TX820", "refuses the login", "sasl.password")
WRONG: dict[str, tuple[str, str | None, dict[str, Any], tuple[str, ...]]] = {
    "no authority": ("tls", "SSL", {"ssl.ca.pem": None}, TRUST),
    "a certificate that is over": ("over", "SSL", {}, TRUST),
    "a certificate of another host": ("named", "SSL", {}, TRUST),
    "no certificate of the client": ("asks", "SSL", {}, ASKS),
    "a wrong password": ("login", "SASL_SSL", login("ibis-lantern-17"), LOGIN),
    "a mechanism that is not offered": ("login", "SASL_SSL", login(mechanism="SCRAM-SHA-256"), LOGIN),
    "no TLS": ("tls", None, {}, ("TX806", "speak TLS", "SASL_SSL or SSL")),
    "a login without TLS": ("login", "SASL_PLAINTEXT", login(), ("TX806", "speak TLS", "SASL_SSL or SSL")),
    "TLS where none is": ("plain", "SSL", {}, ("TX806", "speak no TLS", "SASL_PLAINTEXT or PLAINTEXT")),
    "a file that is not there": (
        "tls",
        "SSL",
        {"ssl.ca.pem": None, "ssl.ca.location": "/nowhere/heron-umbrella-42"},
        ("TX806", "ssl.ca.location", "each machine"),
    ),
    "a key that is none": ("asks", "SSL", {"ssl.key.pem": SECRET}, ("TX806", "ssl.key.pem")),
    "no name of a user": ("login", "SASL_SSL", login() | {"sasl.username": None}, ("TX806", "sasl.username")),
    "no mechanism": ("login", "SASL_SSL", login() | {"sasl.mechanism": None}, ("TX806", "sasl.mechanism")),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_soon(shop: Shop, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """No retry helps. The source, the reason and what to mend are named; a secret is not."""
    kind, protocol, more, told = WRONG[case]
    monkeypatch.setenv(VARIABLE, json.dumps(without_none(shop.options(kind, protocol), more)))
    began = time.monotonic()
    with refused(told[0], "source 'shop'", *told[1:]) as error:
        Clicks().plan()
    assert time.monotonic() - began < SOON
    assert not isinstance(error.value, TransientError)
    for secret in ("heron", "ibis", "BEGIN", "PRIVATE"):
        assert secret not in str(error.value) + repr(error.value)


def test_strangers_are_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An authority of others signed the broker's certificate, or the client's; or a key is of another certificate."""
    monkeypatch.setenv(VARIABLE, json.dumps(shop.options("tls", **{"ssl.ca.pem": shop.stranger.pem})))
    with refused(TRUST[0], "source 'shop'", *TRUST[1:]):
        Clicks().plan()
    monkeypatch.setenv(VARIABLE, json.dumps(shop.options("asks", **shop.stranger.client())))
    with refused(ASKS[0], "source 'shop'", *ASKS[1:]):
        Clicks().plan()
    other = {"ssl.key.pem": shop.authority.client()["ssl.key.pem"]}
    monkeypatch.setenv(VARIABLE, json.dumps(shop.options("asks", **shop.authority.client() | other)))
    with refused("TX806", "source 'shop'", "ssl.key.pem"):
        Clicks().plan()
    monkeypatch.setenv(
        VARIABLE, json.dumps(shop.options("asks", **shop.authority.client(SECRET) | {"ssl.key.password": "ibis"}))
    )
    with refused("TX806", "source 'shop'", "ssl.key.pem") as error:
        Clicks().plan()
    assert "ibis" not in str(error.value)


def test_brokers_that_are_away_are_an_outage_with_tls_too(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody says that a login is wrong while no broker answers (R12)."""
    monkeypatch.setitem(look._ASKS, "request_timeout", 2.0)
    options = shop.options("tls") | {"bootstrap.servers": "127.0.0.1:1"}
    monkeypatch.setenv(VARIABLE, json.dumps(options))
    with refused("TX224", "source 'shop'", "does not answer") as error:
        Clicks().plan()
    assert isinstance(error.value, TransientError)


@pytest.mark.parametrize(
    ("kind", "protocol", "more", "told"),
    [
        ("tls", "SSL", {"ssl.ca.pem": None}, TRUST),
        ("asks", "SSL", {}, ASKS),
        ("login", "SASL_SSL", login("ibis-lantern-17"), LOGIN),
        ("tls", None, {}, ("TX806", "speak TLS")),
    ],
    ids=["authority", "certificate", "password", "protocol"],
)
def test_a_reader_that_is_refused_leaves_no_hole(
    shop: Shop,
    kind: str,
    protocol: str | None,
    more: dict[str, Any],
    told: tuple[str, ...],
) -> None:
    """An executor may have other files than the driver: what it is refused is no partition that is away (R13)."""
    given = json.dumps(without_none(shop.options(kind, protocol), more))
    reader = TopicReader("topic 'clicks' (source 'shop')", client.options_of("shop", given), "clicks", True, 20.0)
    began = time.monotonic()
    with refused(told[0], "source 'shop'", "partition 0", *told[1:]) as error:
        reader.count(0, Range(0, 2))
    assert time.monotonic() - began < SOON
    assert "ibis" not in str(error.value)
