"""Tables, roles, values and moments that a spout meets: read right, or refused by name, and never in silence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, isnan
from threading import Thread
from typing import Any

import psycopg2
import pytest
from databases import session
from sizes import some_of
from source_tables import READ, VARIABLE, Shop, role, shop_in, transaction
from sqlalchemy import make_url
from support import until

from txbatch import PostgresSpout
from txbatch.core.errors import (
    BadRecord,
    InvalidOption,
    InvalidSetting,
    LoginRefused,
    PartitionUnreadable,
    SourceAway,
    SourceChanged,
    SourceUnfit,
    UnsafeSource,
)
from txbatch.settings import source_url
from txbatch.spouts.tables import connection, stretches
from txbatch.spouts.tables.copy_text import Copy

Databases = Callable[[str], str]


@pytest.fixture
def shop(databases: Databases) -> Iterator[Shop]:
    with shop_in(databases("shop")) as made:
        yield made


# ---- numbers that nobody can forge


@pytest.mark.parametrize(
    "forged",
    [
        "INSERT INTO shop.sale VALUES (1, 's', 1, '5')",
        "INSERT INTO shop.sale SELECT id + 1, shop, amount, xact FROM shop.sale",
        "UPDATE shop.sale SET xact = '5'",
        "SET session_replication_role = replica; INSERT INTO shop.sale VALUES (1, 's', 1, '5')",
    ],
)
def test_a_row_with_an_old_number_is_refused_at_its_writer(shop: Shop, forged: str) -> None:
    shop.insert(7)
    with pytest.raises(psycopg2.errors.RaiseException, match="xact is set by the server alone"):
        shop.ask(forged)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("DROP TRIGGER txbatch_xact_insert ON shop.sale", "no trigger guards xact"),
        ("ALTER TABLE shop.sale ENABLE TRIGGER ALL", "no trigger guards xact in all sessions"),
        ("ALTER TABLE shop.sale ENABLE REPLICA TRIGGER txbatch_xact_insert", "no trigger guards xact in all sessions"),
        ("DROP INDEX shop.sale_xact_idx", "no valid index begins with xact"),
        ("ALTER TABLE shop.sale ALTER xact DROP DEFAULT", "is not xid8 NOT NULL DEFAULT"),
        ("ALTER TABLE shop.sale DROP COLUMN xact CASCADE", "no column xact of type xid8"),
        ("ALTER TABLE shop.sale DROP COLUMN amount", "no column 'amount' is there"),
        ("ALTER TABLE shop.sale RENAME COLUMN shop TO branch", "no column 'shop' is there"),
        ("ALTER TABLE shop.sale ALTER amount TYPE numeric(14,4)", r"numeric\(14,4\) does not fit decimal\(12,2\)"),
        ("ALTER TABLE shop.sale ALTER id TYPE numeric", "id: numeric does not fit bigint"),
        ("ALTER TABLE shop.sale SET UNLOGGED", "unlogged or temporary"),
        ("CREATE TABLE shop.child () INHERITS (shop.sale)", "other tables inherit from it"),
        ("ALTER TABLE shop.sale RENAME TO old; CREATE VIEW shop.sale AS SELECT * FROM shop.old", "it is a view"),
        ("DROP TABLE shop.sale", "no such table"),
    ],
)
def test_a_table_that_cannot_be_read_without_loss_is_refused(shop: Shop, made: str, told: str) -> None:
    shop.ask(made)
    with pytest.raises(SourceUnfit, match=told):
        shop.plan()


# ---- roles


def test_a_role_that_can_only_read_is_enough(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.insert(1)
    with role(shop.url, *READ) as url:
        monkeypatch.setenv(VARIABLE, url)
        assert shop.take() == [1]


@pytest.mark.parametrize("grants", [(), READ[:1], READ[1:]])
def test_a_role_without_a_right_is_told_which(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, grants: tuple[str, ...]
) -> None:
    with role(shop.url, *grants) as url:
        monkeypatch.setenv(VARIABLE, url)
        with pytest.raises(SourceUnfit, match="GRANT"):
            shop.plan()


@pytest.mark.parametrize("rule", [True, False], ids=["told", "in silence"])
def test_row_security_hides_nothing_in_silence(shop: Shop, monkeypatch: pytest.MonkeyPatch, rule: bool) -> None:
    shop.insert(1, 2)
    shop.ask("ALTER TABLE shop.sale ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON shop.sale USING (id = 1)")
    if not rule:
        monkeypatch.setitem(connection.SETTINGS, "row_security", "on")
        monkeypatch.setattr("txbatch.spouts.tables.description._TABLE", _without_row_security())
    with role(shop.url, *READ) as url:
        monkeypatch.setenv(VARIABLE, url)
        if rule:
            with pytest.raises(SourceUnfit, match=r"row security hides rows of it from the role 'role_.*BYPASSRLS"):
                shop.plan()
        else:
            assert shop.take() == [1]


def _without_row_security() -> str:
    from txbatch.spouts.tables.description import _TABLE

    return _TABLE.replace("row_security_active(c.oid)", "false")


def test_a_policy_that_came_after_the_check_is_an_error(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.insert(1, 2)
    with role(shop.url, *READ) as url:
        monkeypatch.setenv(VARIABLE, url)
        with shop.spout().session() as asked:
            shop.ask("ALTER TABLE shop.sale ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON shop.sale USING (id = 1)")
            with pytest.raises(SourceUnfit, match=r"\(42501\)"):
                asked.rows("SELECT id FROM shop.sale")


def test_a_role_that_may_write_in_a_ledger_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop_in(postgres_url) as shop:
        shop.insert(1)
        with pytest.raises(UnsafeSource, match="may write in the schema"):
            shop.plan()
        with role(shop.url, *READ) as url:
            monkeypatch.setenv(VARIABLE, url)
            assert shop.take() == [1]
        with role(
            shop.url, *READ, "GRANT USAGE ON SCHEMA txbatch TO {role}", "GRANT INSERT ON txbatch.batch TO {role}"
        ) as url:
            monkeypatch.setenv(VARIABLE, url)
            with pytest.raises(UnsafeSource, match="may write in the schema 'txbatch'"):
                shop.plan()


# ---- credentials


@pytest.mark.parametrize(
    ("url", "error", "told"),
    [
        ("postgresql://reader:heron@127.0.0.1:1/shop", SourceAway, r"does not answer \(Connection refused\)"),
        ("postgresql://reader:heron@nowhere.invalid/shop", SourceAway, "could not translate host name"),
        ("postgresql://reader:he@ron@db/shop", InvalidSetting, "two @"),
        ("mysql://reader:heron@db/shop", InvalidSetting, "is no URL of PostgreSQL"),
        ("postgresql://reader:heron@db:port/shop", InvalidSetting, "a port or an option that cannot be used"),
        ("postgresql://reader:heron@db/shop?nosuch=1", InvalidSetting, "is no URL of PostgreSQL"),
    ],
)
def test_a_url_that_leads_nowhere_is_not_shown(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, url: str, error: type[Exception], told: str
) -> None:
    monkeypatch.setenv(VARIABLE, url)
    with pytest.raises(error, match=told) as refused:
        shop.plan()
    shown = f"{refused.value!r} {refused.value} {refused.value.__cause__}"
    assert not [piece for piece in ("heron", "he@", "ron", "127.0.0.1", "nowhere") if piece in shown]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (
            'connection to server at "h", port 5 failed: FATAL:  password authentication failed for user "u"',
            LoginRefused,
        ),
        ('FATAL:  role "u" does not exist', LoginRefused),
        ('FATAL:  database "d" does not exist', LoginRefused),
        ("connection to server failed: fe_sendauth: no password supplied", LoginRefused),
        ("FATAL:  no pg_hba.conf entry for host", LoginRefused),
        ('server certificate for "heron" does not match host name "h"', LoginRefused),
        ("SSL error: tlsv13 alert certificate required", LoginRefused),
        ("SSL error: tlsv1 alert unknown ca", LoginRefused),
        ("FATAL:  connection requires a valid client certificate", LoginRefused),
        ('private key file "/heron" has group or world access', InvalidSetting),
        ('could not read root certificate file "/heron": no certificate or crl found', InvalidSetting),
        ("SSL error: unexpected eof while reading", SourceAway),
        ("FATAL:  sorry, too many clients already", SourceAway),
        ("FATAL:  the database system is starting up", SourceAway),
        ("server closed the connection unexpectedly", SourceAway),
        ('could not translate host name "heron@db" to address', SourceAway),
    ],
)
def test_a_failed_connection_is_of_a_kind(said: str, error: type[Exception]) -> None:
    found = connection.no_connection("shop", said)
    assert type(found) is error
    assert "heron" not in str(found)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        *(("42501", SourceUnfit), ("42703", SourceUnfit), ("42P01", SourceUnfit)),
        *(("57014", PartitionUnreadable), ("40001", PartitionUnreadable), ("57P01", SourceAway)),
        *(("53300", SourceAway), ("55P03", PartitionUnreadable), (None, SourceAway)),
        *(("28P01", LoginRefused), ("22008", BadRecord), ("22021", BadRecord), ("22P05", BadRecord)),
    ],
)
def test_an_error_of_a_statement_is_of_a_kind(state: str | None, error: type[Exception]) -> None:
    assert type(connection.in_our_words("shop.sale (source 'shop')", state, "why")) is error


# ---- within the read


@pytest.mark.parametrize("change", ["CLUSTER shop.sale USING sale_pkey", "VACUUM FULL shop.sale", "TRUNCATE shop.sale"])
def test_a_table_that_is_written_anew_within_the_read_is_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Blocks of the one file and blocks of the next are as many rows, and others."""
    monkeypatch.setattr(stretches, "ROWS_PER_TASK", 100)
    shop.ask("INSERT INTO shop.sale SELECT 5000 - n, 's', n FROM generate_series(1, 2000) n")
    ranges = shop.plan()
    spout = shop.spout()
    cut = shop.cut(ranges, 2)
    copy = Copy("shop", source_url("shop"), "shop.sale", spout._fields, ["id"])
    assert len(cut) > 1
    assert list(copy.read(cut[0]))
    shop.ask(change)
    with pytest.raises(SourceChanged, match="was written anew"):
        list(copy.read(cut[1]))


def test_a_table_that_is_written_anew_while_its_only_task_waits_is_read(shop: Shop) -> None:
    """The rows are fixed after the wait for the lock: rows as of before are not there any more."""
    shop.insert(1)
    (stretch,) = shop.cut(shop.plan(), 1)
    copy = Copy("shop", source_url("shop"), "shop.sale", shop.spout()._fields, ["id"])
    writer = transaction(shop.url)
    writer.cursor().execute("ALTER TABLE shop.sale ALTER amount TYPE numeric(11,2)")
    found = list[int]()
    task = Thread(target=lambda: found.extend(row["id"] for batch in copy.read(stretch) for row in batch.to_pylist()))
    task.start()
    waits = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'txbatch source' AND wait_event_type = 'Lock'"
    )
    until(lambda: shop.ask(waits) == [(1,)], "the task waits")
    writer.commit()
    writer.close()
    task.join()
    assert found == [1]


def test_a_partitioned_table_is_read_leaf_by_leaf(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    table = (
        "CREATE SCHEMA shop; CREATE TABLE shop.sale (id bigint PRIMARY KEY, shop text, amount numeric(12,2)) "
        "PARTITION BY RANGE (id); CREATE TABLE shop.low PARTITION OF shop.sale FOR VALUES FROM (0) TO (1000); "
        "CREATE TABLE shop.high PARTITION OF shop.sale FOR VALUES FROM (1000) TO (9000)"
    )
    with shop_in(databases("shop"), table, before=[1, 2000]) as shop:
        monkeypatch.setattr(stretches, "ROWS_PER_TASK", 100)
        shop.ask("INSERT INTO shop.sale SELECT n, 's', n FROM generate_series(500, 1999) n")
        ranges = shop.plan()
        assert sorted(row["id"] for row in shop.read(ranges, cores=2)) == [1, *range(500, 1999 + 1), 2000]
        with pytest.raises(psycopg2.errors.RaiseException):
            shop.ask("INSERT INTO shop.low VALUES (7, 's', 1, '5')")
        shop.ask("ALTER TABLE shop.low DISABLE TRIGGER ALL")
        with pytest.raises(SourceUnfit, match="no trigger guards xact"):
            shop.plan()


def test_many_open_transactions_are_each_read_once(shop: Shop) -> None:
    opened = [transaction(shop.url) for _ in range(40)]
    for number, each in enumerate(opened):
        each.cursor().execute(f"INSERT INTO shop.sale VALUES ({number}, 's', 1)")
    shop.insert(100)
    assert shop.take() == [100]
    for each in opened[::2]:
        each.commit()
    assert shop.take() == [*range(0, 40, 2)]
    for each in opened[1::2]:
        each.rollback()
    assert shop.take() is None
    for each in opened:
        each.close()


def test_a_cancelled_read_ends_its_session(shop: Shop) -> None:
    shop.ask("INSERT INTO shop.sale SELECT n, repeat('x', 1000), n FROM generate_series(1, 30000) n")
    ranges = shop.plan()
    spout = shop.spout()
    (stretch,) = shop.cut(ranges, 1)
    reading = Copy("shop", source_url("shop"), "shop.sale", spout._fields, ["id"]).read(stretch)
    next(reading)
    reading.close()
    ask = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'txbatch source' AND datname = current_database()"
    until(lambda: shop.ask(ask) == [(0,)], "the session of the read goes on")


# ---- values

AT = datetime(2026, 3, 1, 12, 30, 0, 250000, tzinfo=UTC)
ROWS: list[tuple[str, str, str, Any]] = [
    ("smallint", "smallint", "-32768", -32768),
    ("integer", "int", "2147483647", 2147483647),
    ("smallint", "bigint", "7", 7),
    ("bigint", "decimal(19,0)", "-9223372036854775808", Decimal(-9223372036854775808)),
    ("numeric(12,2)", "decimal(14,3)", "1234567890.12", Decimal("1234567890.120")),
    ("numeric", "decimal(12,2)", "1.50", Decimal("1.50")),
    ("numeric", "string", "'NaN'", "NaN"),
    ("real", "float", "0.5", 0.5),
    ("real", "double", "0.1::real", 0.10000000149011612),
    ("double precision", "double", "'-infinity'", -inf),
    ("boolean", "boolean", "false", False),
    ("text", "string", "''", ""),
    ("text", "string", "E'a\"b,\\n\\r\\n\\\\.'", 'a"b,\n\r\n\\.'),
    ("text", "string", "'NULL'", "NULL"),
    ("text", "string", "E'\\t'", "\t"),
    ("text", "string", "E'\\r'", "\r"),
    ("text", "string", "E'\\b\\f\\v\\x01\\x7f'", "\b\f\v\x01\x7f"),
    ("text", "string", "'\\'", "\\"),
    ("text", "string", "'\\\\'", "\\\\"),
    ("text", "string", "'\\n'", "\\n"),
    ("text", "string", "E'\\\\\\n'", "\\\n"),
    ("text", "string", "'\\N'", "\\N"),
    ("text", "string", "'\\.'", "\\."),
    ("text", "string", "'\\x41\\101'", "\\x41\\101"),
    ("text", "string", "' a '", " a "),
    ("varchar(9)", "string", "'é✓'", "é✓"),
    ("char(5)", "string", "'ab'", "ab   "),
    ("uuid", "string", "'00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
    ("json", "string", '\'{"a": "\\u0000"}\'', '{"a": "\\u0000"}'),
    ("jsonb", "string", "'{\"a\":1}'", '{"a": 1}'),
    ("inet", "string", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("integer[]", "string", "'{{1,2},{3,NULL}}'", "{{1,2},{3,NULL}}"),
    ("text[]", "string", "ARRAY[E'a\\tb', '\\', '', NULL]", '{"a\tb","\\\\","",NULL}'),
    ("jsonb", "string", '\'{"a": "\\t\\\\"}\'', '{"a": "\\t\\\\"}'),
    ("money", "string", "'1.50'", "$1.50"),
    ("interval", "string", "'1 day 02:00'", "1 day 02:00:00"),
    ("time", "string", "'24:00'", "24:00:00"),
    ("date", "date", "'2026-02-28'", date(2026, 2, 28)),
    ("date", "string", "'infinity'", "infinity"),
    ("timestamptz", "timestamp", "'2026-03-01 13:30:00.25+01'", AT),
    ("timestamp", "timestamp", "'2026-03-01 13:30:00.25'", AT),
    ("bytea", "binary", "'\\x00ff'", b"\x00\xff"),
    ("bytea", "binary", "''", b""),
    ("bytea", "string", "'\\x00ff'", "\\x00ff"),
]


@pytest.mark.parametrize(("type_", "field", "literal", "value"), ROWS, ids=lambda value: str(value)[:30])
def test_a_value_is_read_as_it_is(shop: Shop, type_: str, field: str, literal: str, value: Any) -> None:
    shop.ask(f"ALTER TABLE shop.sale ADD COLUMN v {type_}")
    shop.ask(f"INSERT INTO shop.sale (id, v) VALUES (1, NULL), (2, {literal}), (3, NULL)")
    shop.fields, shop.options = f"id bigint, v {field}", {"timezone": "Europe/Oslo"}
    assert {row["id"]: row["v"] for row in shop.read(shop.plan())} == {1: None, 2: value, 3: None}
    shop.fields = f"v {field}"
    shop.offsets = {}
    assert sorted(str(row["v"]) for row in shop.read(shop.plan())) == sorted(["None", str(value), "None"])


def test_a_text_that_begins_with_a_byte_order_mark_is_read_as_it_is(shop: Shop) -> None:
    shop.ask("INSERT INTO shop.sale VALUES (1, U&'\\FEFFa', 1), (2, U&'\\FEFF', 1)")
    shop.fields = "shop string"
    assert [row["shop"] for row in shop.read(shop.plan())] == ["\ufeffa", "\ufeff"]
    shop.ask(
        "ALTER TABLE shop.sale ADD COLUMN v date; INSERT INTO shop.sale (id, shop, v) VALUES (3, U&'\\FEFFb', 'infinity')"
    )
    shop.fields = "shop string, v date"
    with pytest.raises(BadRecord, match="v: 'infinity' is no date"):
        shop.read(shop.plan())


def test_no_number_is_a_number_of_doubles(shop: Shop) -> None:
    shop.ask("ALTER TABLE shop.sale ADD COLUMN v double precision; INSERT INTO shop.sale (id, v) VALUES (1, 'NaN')")
    shop.fields = "v double"
    assert isnan(shop.read(shop.plan())[0]["v"])


@pytest.mark.parametrize(
    ("type_", "field", "literal", "shown"),
    [
        ("numeric", "decimal(12,2)", "'NaN'", "'NaN' is no decimal(12,2)"),
        ("numeric", "decimal(12,2)", "'Infinity'", "'Infinity' is no decimal(12,2)"),
        ("numeric", "decimal(12,2)", "1.005", "'1.005' is no decimal(12,2)"),
        ("numeric", "decimal(12,2)", "12345678901.5", "'12345678901.5' is no decimal(12,2)"),
        ("date", "date", "'infinity'", "'infinity' is no date"),
        ("date", "date", "'0044-03-15 BC'", "'0044-03-15 BC' is no date"),
        ("timestamptz", "timestamp", "'infinity'", "'infinity' is no timestamp"),
        ("timestamptz", "timestamp", "'10000-01-01 00:00+00'", "'10000-01-01 00:00:00+00' is no timestamp"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_table_key_and_field(
    shop: Shop, type_: str, field: str, literal: str, shown: str
) -> None:
    shop.ask(f"ALTER TABLE shop.sale ADD COLUMN v {type_}")
    shop.ask(
        f"INSERT INTO shop.sale (id, v) SELECT n, CASE WHEN n = 71 THEN {literal} END::{type_} FROM generate_series(1, 99) n"
    )
    shop.fields = f"id bigint, v {field}"
    with pytest.raises(BadRecord) as refused:
        shop.read(shop.plan())
    assert f"shop.sale, id=71, v: {shown}; mend the row" in refused.value.text


def test_a_type_that_changes_between_plan_and_read_is_looked_at_again(shop: Shop) -> None:
    shop.insert(1)
    ranges = shop.plan()
    shop.ask("ALTER TABLE shop.sale ALTER amount TYPE text")
    with pytest.raises(SourceUnfit, match="amount: text does not fit"):
        shop.read(ranges)


def test_a_long_text_is_a_row(shop: Shop) -> None:
    size = some_of(8_000_000, 50_000_000)  # more than a chunk
    shop.ask(f"INSERT INTO shop.sale SELECT 1, repeat('é', {size // 2}), 1")
    (row,) = shop.read(shop.plan())
    assert len(row["shop"].encode()) == size


# ---- options


@pytest.mark.parametrize(
    "options",
    [
        {"table": "sale"},
        {"table": ".sale"},
        {"table": "shop."},
        {"max_rows": 0},
        {"max_rows": True},
        {"existing": "now"},
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        PostgresSpout(options.pop("table", "shop.sale"), "id bigint", source="shop", **options)


def test_a_replica_is_read_at_its_origin(shop: Shop) -> None:
    shop.ask("CREATE SUBSCRIPTION s CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false, slot_name = NONE)")
    shop.ask("INSERT INTO pg_subscription_rel SELECT oid, 'shop.sale'::regclass, 'r', NULL FROM pg_subscription")
    try:
        with pytest.raises(SourceUnfit, match="it is a logical replica"):
            shop.plan()
    finally:
        shop.ask("DROP SUBSCRIPTION s")


@pytest.mark.parametrize("leaf", ["shop.low", "shop.high"])
def test_a_partition_that_is_a_replica_or_unlogged_is_refused(databases: Databases, leaf: str) -> None:
    """The parent is neither: what is published without the root of its partitions has rows of leaves."""
    table = (
        "CREATE SCHEMA shop; CREATE TABLE shop.sale (id bigint PRIMARY KEY, shop text, amount numeric(12,2)) "
        "PARTITION BY RANGE (id); CREATE TABLE shop.low PARTITION OF shop.sale FOR VALUES FROM (0) TO (1000); "
        "CREATE TABLE shop.more PARTITION OF shop.sale FOR VALUES FROM (1000) TO (9000) PARTITION BY RANGE (id); "
        "CREATE TABLE shop.high PARTITION OF shop.more FOR VALUES FROM (1000) TO (2000)"
    )
    with shop_in(databases("shop"), table, before=[1]) as shop:
        shop.ask(f"ALTER TABLE {leaf} SET UNLOGGED")
        with pytest.raises(SourceUnfit, match=f"its partition {leaf} is an unlogged or temporary table"):
            shop.plan()
        shop.ask(f"ALTER TABLE {leaf} SET LOGGED")
        shop.ask(
            "CREATE SUBSCRIPTION s CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false, slot_name = NONE)"
        )
        shop.ask(f"INSERT INTO pg_subscription_rel SELECT oid, '{leaf}'::regclass, 'r', NULL FROM pg_subscription")
        try:
            with pytest.raises(SourceUnfit, match=f"its partition {leaf} is a logical replica"):
                shop.plan()
        finally:
            shop.ask("DROP SUBSCRIPTION s")
        shop.insert(2, 1500)
        assert shop.take() == [1, 2, 1500]


def test_a_text_of_no_encoding_is_refused_and_named(databases: Databases) -> None:
    name = f"ascii_{os.getpid()}"
    with session(databases("shop")) as ask:
        ask(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
        try:
            url = make_url(databases("shop")).set(database=name).render_as_string(hide_password=False)
            with shop_in(url) as shop:
                shop.insert(1)
                shop.ask("INSERT INTO shop.sale VALUES (2, convert_from('\\xff', 'SQL_ASCII'), 1)")
                with pytest.raises(
                    BadRecord, match="a text of the table is no UTF-8, as a database of the encoding SQL_ASCII"
                ):
                    shop.take()
        finally:
            ask(f"DROP DATABASE {name} WITH (FORCE)")
