"""A table that is read by time keeps the contract of spouts: an interval as of its plan, single and together, through outages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from source_intervals import FIELDS, TABLE, Sales, day, sales_in
from source_tables import VARIABLE
from sqlalchemy import make_url

from txbatch import PostgresIntervalSpout
from txbatch.testing import SpoutContract


class TestTableByTime(SpoutContract):
    intervals = (day(0), day(1), day(3))
    secret = "heron-umbrella-42"
    sales: Sales
    number = 0

    @pytest.fixture(autouse=True)
    def table(self, databases: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with sales_in(databases("shop")) as sales:
            self.sales = sales
            url = make_url(sales.shop.url).set(password=self.secret)
            monkeypatch.setenv(VARIABLE, url.render_as_string(hide_password=False))
            yield

    def make(self, folder: Path) -> PostgresIntervalSpout:
        return PostgresIntervalSpout("shop.sale", FIELDS, time="sold_at", source="shop")

    def append(self, folder: Path, place: Any, number: int) -> None:
        for _ in range(number):
            self.number += 1
            self.sales.sell(place.start + timedelta(minutes=self.number), self.number)

    def take_away(self, folder: Path) -> None:
        self.url = os.environ[VARIABLE]
        os.environ[VARIABLE] = f"postgresql://reader:{self.secret}@127.0.0.1:1/shop"

    def give_back(self, folder: Path) -> None:
        os.environ[VARIABLE] = self.url

    def cut_off(self, folder: Path) -> None:
        self.sales.shop.ask(
            "DELETE FROM shop.sale s USING (SELECT max(id) AS id FROM shop.sale GROUP BY sold_at::date) newest "
            "WHERE s.id = newest.id"
        )

    def make_anew(self, folder: Path) -> None:
        self.sales.shop.ask("DROP SCHEMA shop CASCADE")
        self.sales.shop.ask(TABLE.format("timestamptz"))
        os.environ[VARIABLE], url = self.sales.shop.url, os.environ[VARIABLE]
        self.sales.shop.prepare()
        os.environ[VARIABLE] = url
        self.sales.sell(self.intervals[0].start, 1)
