"""A table keeps the contract of spouts: its rows once, by the same plan again, single and together, through outages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from source_tables import FIELDS, VARIABLE, Shop, shop_in
from sqlalchemy import make_url

from txbatch import OpaquePostgresSpout, PostgresSpout
from txbatch.testing import SpoutContract


class TestTable(SpoutContract):
    names = ("shop.sale",)
    secret = "heron-umbrella-42"
    of: type[PostgresSpout] = PostgresSpout
    shop: Shop
    number = 0

    @pytest.fixture(autouse=True)
    def table(self, databases: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with shop_in(databases("shop"), of=self.of) as shop:
            self.shop = shop
            monkeypatch.setenv(
                VARIABLE, make_url(shop.url).set(password=self.secret).render_as_string(hide_password=False)
            )
            yield

    def make(self, folder: Path) -> PostgresSpout:
        return self.of("shop.sale", FIELDS, source="shop", max_rows=2)

    def append(self, folder: Path, place: Any, number: int) -> None:
        for _ in range(number):
            self.number += 1
            self.shop.insert(self.number)

    def take_away(self, folder: Path) -> None:
        self.url = os.environ[VARIABLE]
        os.environ[VARIABLE] = f"postgresql://reader:{self.secret}@127.0.0.1:1/shop"

    def give_back(self, folder: Path) -> None:
        os.environ[VARIABLE] = self.url

    def cut_off(self, folder: Path) -> None:
        self.shop.ask("DELETE FROM shop.sale WHERE id = (SELECT max(id) FROM shop.sale)")

    def make_anew(self, folder: Path) -> None:
        self.shop.ask("DROP SCHEMA shop CASCADE")
        self.shop.ask(
            "CREATE SCHEMA shop; CREATE TABLE shop.sale (id bigint PRIMARY KEY, shop text, amount numeric(12,2))"
        )
        os.environ[VARIABLE], url = self.shop.url, os.environ[VARIABLE]
        self.shop.prepare()
        os.environ[VARIABLE] = url
        self.shop.insert(1)


class TestChangingTable(TestTable):
    """Rows that go are not seen, by the promise of the spout: no `cut_off`."""

    of = OpaquePostgresSpout
    cut_off = SpoutContract.cut_off
