"""What PostgreSQL shows of the rows of TopNBy is what the twin shows, for values of every type."""

from __future__ import annotations

import json

import pytest
from ordered_values import VALUES
from sqlalchemy import Engine, text

from txbatch.core.records.ordered_texts import BETWEEN, decode, ordered_text
from txbatch.postgres.database.warehouse_migrations import migrate_warehouse

ALL = [ordered_text(value) for values in VALUES.values() for value in values]


def test_each_value_is_that_of_the_twin(engine: Engine) -> None:
    """Whatever a session says of time zones and dates; null is that of JSON."""
    with engine.connect() as connection:
        migrate_warehouse(connection, create=True)
        connection.exec_driver_sql("SET LOCAL timezone = 'Asia/Kolkata'; SET LOCAL datestyle = 'German, DMY'")
        found = connection.execute(
            text("SELECT CAST(report.top_rows(CAST(:texts AS text[]), ARRAY[NULL, 'v']) AS text)"),
            {"texts": [f"s{BETWEEN}{each}" for each in ALL]},
        ).scalar_one()
        connection.rollback()
    assert [repr(each["v"]) for each in json.loads(found)] == [repr(decode(each)) for each in ALL]


@pytest.mark.parametrize("type_", VALUES)
def test_the_greatest_text_is_that_of_the_greatest_value(engine: Engine, type_: str) -> None:
    texts = [ordered_text(value) for value in VALUES[type_]]
    with engine.connect() as connection:
        found = connection.execute(
            text('SELECT report.merge_top(CAST(:texts AS text[]) COLLATE "C", ARRAY[]::text[], 1000)'),
            {"texts": texts},
        ).scalar_one()
    assert found == texts[::-1]
