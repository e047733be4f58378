"""`txbatch source`: what a table lacks, how it is prepared, and which sources are known; no URL is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from cli_support import refused
from click.testing import Result
from source_tables import READ, TABLE, VARIABLE, Shop, known, role

from txbatch.settings import source_url

Txbatch = Callable[..., Result]


@pytest.fixture
def shop(databases: Callable[[str], str]) -> Iterator[Shop]:
    with known(databases("shop")):
        made = Shop(source_url("shop"))
        made.ask(TABLE)
        yield made


def test_a_table_is_prepared_and_then_lacks_nothing(txbatch: Txbatch, shop: Shop) -> None:
    shop.insert(1, 2)
    told = txbatch("source", "check", "shop", "shop.sale")
    assert told.exit_code == 1
    assert "no column xact of type xid8" in told.stdout
    printed = txbatch("source", "prepare", "shop", "shop.sale")
    assert printed.exit_code == 0, printed.output
    for statement in ("ADD COLUMN xact xid8", "CREATE INDEX CONCURRENTLY", "BEFORE INSERT", "ENABLE ALWAYS TRIGGER"):
        assert statement in printed.stdout
    assert txbatch("source", "prepare", "shop", "shop.sale", "--apply").stderr == "prepared shop.sale\n"
    assert (
        "shop.sale is ready, rows from before are read by id" in txbatch("source", "check", "shop", "shop.sale").stdout
    )
    again = txbatch("source", "prepare", "shop", "shop.sale")
    assert (again.stdout, again.stderr) == ("", "nothing is missing\n")


@pytest.mark.parametrize(
    ("took", "told"),
    [
        ("DROP INDEX shop.sale_xact_idx", "no valid index begins with xact"),
        ("DROP TRIGGER txbatch_xact_insert ON shop.sale", "no trigger guards xact"),
        ("DROP TRIGGER txbatch_xact_update ON shop.sale", "no trigger guards xact"),
        ("ALTER TABLE shop.sale DISABLE TRIGGER txbatch_xact_insert", "no trigger guards xact"),
        ("ALTER TABLE shop.sale ENABLE TRIGGER ALL", "no trigger guards xact in all sessions (ENABLE ALWAYS)"),
    ],
)
def test_what_was_taken_away_is_told_and_made_again(txbatch: Txbatch, shop: Shop, took: str, told: str) -> None:
    shop.prepare()
    shop.ask(took)
    result = txbatch("source", "check", "shop", "shop.sale")
    assert result.exit_code == 1
    assert told in " ".join(result.stdout.split())
    shop.prepare()
    assert txbatch("source", "check", "shop", "shop.sale").exit_code == 0


def test_a_column_of_the_name_is_left_alone(txbatch: Txbatch, shop: Shop) -> None:
    shop.ask("ALTER TABLE shop.sale ADD COLUMN xact text")
    printed = txbatch("source", "prepare", "shop", "shop.sale")
    assert "ADD COLUMN" not in printed.stdout
    assert "rename that column" in " ".join(txbatch("source", "check", "shop", "shop.sale").stdout.split())


def test_a_view_cannot_be_prepared(txbatch: Txbatch, shop: Shop) -> None:
    shop.ask("CREATE VIEW shop.all AS SELECT * FROM shop.sale")
    refused(txbatch("source", "prepare", "shop", "shop.all"), "it is a view: read the table itself")
    refused(txbatch("source", "prepare", "shop", "sale"), "'sale' is no table; write schema and table")


def test_sources_are_listed_without_their_urls(txbatch: Txbatch, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXBATCH_SOURCE_AWAY", "postgresql://reader:heron@127.0.0.1:1/shop")
    monkeypatch.setenv("TXBATCH_SOURCE_WRONG", "postgresql://rea:her@on@db/shop")
    with role(shop.url, *READ) as url:
        monkeypatch.setenv(VARIABLE, url)
        listed = txbatch("source", "list", "--json")
        assert listed.exit_code == 1  # two do not answer
        told = {row["source"]: row["answer"] for row in json.loads(listed.stdout)}
    assert told["shop"] == "yes"
    assert told["away"] == "source 'away' does not answer (Connection refused); try again"
    assert "it has two @" in told["wrong"]
    assert "heron" not in listed.output
