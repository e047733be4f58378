"""What a connection of Airflow names, and what its button Test says of the database."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import Connection
from sqlalchemy import make_url

from txbatch import settings
from txbatch.core.errors import DefinitionError
from txbatch.orchestration.airflow import resolve_settings, url_of
from txbatch.orchestration.hook import TxbatchHook
from txbatch.postgres.apart import apart
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.transaction import transaction
from txbatch.spouts.tables.connection import dsn
from txbatch.spouts.topics.client import options_of


@pytest.mark.parametrize("extra", [{"hostaddr": None}, {"host": ""}, {"service": ""}, {}])
def test_an_empty_option_names_no_host(extra: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="the Airflow connection 'c' names no host"):
        url_of(Connection(conn_id="c", conn_type="txbatch", extra=json.dumps(extra)))


def test_a_connection_that_cannot_be_used_is_named() -> None:
    with pytest.raises(DefinitionError, match="the Airflow connection 'c': there is no port 99999"):
        url_of(Connection(conn_id="c", conn_type="txbatch", host="h", port=99999))


def query_of(extra: Any) -> dict[str, Any]:
    connection = Connection(conn_id="c", conn_type="postgres", host="h", extra=json.dumps(extra))
    return dict(make_url(url_of(connection)).query)


@pytest.mark.parametrize(
    ("extra", "options"),
    [
        ({"cursor": "dictcursor", "iam": False, "sslmode": "require"}, {"sslmode": "require"}),
        ({"sqlalchemy_query": {"a": "b"}, "aws_conn_id": "aws", "redshift": False, "iam": "false"}, {}),
        ({"__extra__": "{}"}, {}),
        ({"__extra__": '{"sslmode": "require", "cursor": "dictcursor"}'}, {"sslmode": "require"}),
        ({"__extra__": {"sslmode": "require"}}, {"sslmode": "require"}),
    ],
)
def test_what_is_said_to_airflows_own_hook_is_not_said_to_libpq(extra: dict[str, Any], options: dict[str, str]) -> None:
    assert query_of(extra) == options


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"sslmod": "require"}, "the Airflow connection 'c' has the option 'sslmod', which libpq does not know"),
        ({"cursor_factory": "x"}, "'c' has the option 'cursor_factory'"),
        ({"iam": True}, "the Airflow connection 'c' has iam: .* give it a password"),
        ({"__extra__": "{"}, "the Airflow connection 'c': its __extra__ is no JSON"),
        ({"__extra__": "[1]"}, "the Airflow connection 'c': its __extra__ is no JSON"),
    ],
)
def test_what_nobody_knows_is_refused_by_name(extra: dict[str, Any], why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        query_of(extra)


def test_several_hosts_of_a_connection() -> None:
    url = url_of(Connection(conn_id="c", conn_type="txbatch", host="one:5433,two:5434", login="u", password="p"))
    assert make_url(url).query == {"host": "one,two", "port": "5433,5434"}


def pressed(url: str, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, str]:
    parts = make_url(url)
    fields: dict[str, Any] = {"host": parts.host, "login": parts.username, "password": parts.password}
    fields |= {"port": parts.port, "schema": parts.database, "extra": dict(parts.query)}
    monkeypatch.setenv("AIRFLOW_CONN_TESTED", json.dumps({"conn_type": "txbatch", **fields}))
    return TxbatchHook("tested").test_connection()


def test_the_button_says_what_is_there(
    postgres_url: str, databases: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pressed(postgres_url, monkeypatch) == (True, "the ledger is there, and of this version")
    url = databases("warehouse")
    works, told = pressed(url, monkeypatch)
    assert not works
    assert told.startswith("TX803 (no retry helps): neither a ledger nor a state apart is there yet")
    engine = connect(url)
    with transaction(engine) as connection:
        apart.migrate_warehouse(connection, create=True)
    engine.dispose()
    assert pressed(url, monkeypatch) == (True, "states apart are there, and no ledger")


def test_a_source_is_found_in_a_connection_and_a_variable_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXBATCH_SOURCE_SHOP", raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_TXBATCH_SOURCE_SHOP", "postgres://reader:heron@db:5432/shop?sslmode=require")
    try:
        resolve_settings()
        url = settings.source_url("shop")
        assert dsn("shop", url, {}) == "user=reader password=heron dbname=shop host=db port=5432 sslmode=require"
        monkeypatch.setenv("TXBATCH_SOURCE_SHOP", "postgresql://another@db/shop")
        assert settings.source_url("shop") == "postgresql://another@db/shop"
        with pytest.raises(DefinitionError, match="or the Airflow connection txbatch_source_other"):
            settings.source_url("other")
    finally:
        settings.sources_from(lambda name: None)


def test_a_connection_of_the_type_txbatch_says_the_options_of_kafkas_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's form offers the type kafka with the provider of Kafka alone; empty fields of the form are no options."""
    monkeypatch.delenv("TXBATCH_SOURCE_EVENTS", raising=False)
    told = {"bootstrap.servers": "broker-1:9093", "security.protocol": "SASL_SSL"}
    given = {
        "conn_type": "txbatch",
        "login": "reader",
        "password": "heron",
        "extra": {**told, "sslmode": None, "sslrootcert": ""},
    }
    monkeypatch.setenv("AIRFLOW_CONN_TXBATCH_SOURCE_EVENTS", json.dumps(given))
    try:
        resolve_settings()
        found = options_of("events", settings.source_url("events"))
    finally:
        settings.sources_from(lambda name: None)
    assert found == {**told, "sasl.username": "reader", "sasl.password": "heron"}


def test_a_connection_of_the_type_kafka_says_the_options_of_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXBATCH_SOURCE_EVENTS", raising=False)
    told = {"security.protocol": "SASL_SSL", "sasl.username": "reader", "sasl.password": "heron"}
    given = {"conn_type": "kafka", "host": "broker-1", "port": 9093, "extra": told}
    monkeypatch.setenv("AIRFLOW_CONN_TXBATCH_SOURCE_EVENTS", json.dumps(given))
    brokers = {"conn_type": "kafka", "extra": {"bootstrap.servers": "a:1,b:2"}}
    monkeypatch.setenv("AIRFLOW_CONN_TXBATCH_SOURCE_CLICKS", json.dumps(brokers))
    try:
        resolve_settings()
        assert options_of("events", settings.source_url("events")) == {"bootstrap.servers": "broker-1:9093", **told}
        assert options_of("clicks", settings.source_url("clicks")) == {"bootstrap.servers": "a:1,b:2"}
    finally:
        settings.sources_from(lambda name: None)
