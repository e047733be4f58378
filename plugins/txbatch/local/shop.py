"""A shop's database in the embedded PostgreSQL: the table of the examples that read a table, and sales for the table."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, make_url, text

from txbatch import settings
from txbatch.local.databases import embedded_database
from txbatch.places import in_checkout
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.transaction import transaction
from txbatch.spouts.tables import prepare
from txbatch.spouts.tables.connection import reading, run_all
from txbatch.spouts.tables.description import describe

# The source of the examples, its database, its table, and who reads the table.
SOURCE, SHOP, TABLE, READER = "demo_shop", "shop", "shop.sale", "shop_reader"
# Sales per day of the first days, by which there is something to count.
_DAYS, _SALES = 7, 200
_MADE = """
CREATE SCHEMA shop;
CREATE TABLE shop.sale (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    shop text NOT NULL,
    amount numeric(12, 2) NOT NULL,
    sold_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON shop.sale (sold_at);
GRANT USAGE ON SCHEMA shop TO shop_reader;
GRANT SELECT ON shop.sale TO shop_reader;
"""
_ROLE = """
DO $do$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'shop_reader') THEN CREATE ROLE shop_reader LOGIN; END IF;
END $do$
"""
_SOLD = """
INSERT INTO shop.sale (shop, amount, sold_at)
SELECT (ARRAY['Soho', 'Mayfair', 'Camden'])[1 + n % 3], (n % 50) + 0.50, :day + n * interval '1 day' / :number
  FROM generate_series(0, :number - 1) n
"""


def demo_source(name: str) -> str | None:
    """Return the URL of the examples' source, if the embedded PostgreSQL is in use; None for other sources."""
    config = settings.resolve() if name == SOURCE and in_checkout() else None
    return ensure_shop(config.home) if config is not None and config.embedded else None


def ensure_shop(home: Path) -> str:
    """Return the URL of the shop's database for a role that can only read. Create the table, with sales, if missing."""
    return make_url(_made(home)).set(username=READER).render_as_string(hide_password=False)


def sell(home: Path, number: int, days_back: int) -> None:
    """Add so many sales to a day, in one transaction."""
    engine = connect(_made(home))
    with transaction(engine) as connection:
        _sell(connection, days_back, number)
    engine.dispose()


def _made(home: Path) -> str:
    """Return the URL of the shop's database for the owner of the table. Create the table, with sales, if missing."""
    url = embedded_database(home, SHOP)
    engine = connect(url)
    with transaction(engine) as connection:
        missing = connection.scalar(text("SELECT to_regclass('shop.sale')")) is None
        if missing:
            connection.execute(text(_ROLE))
            connection.execute(text(_MADE))
            for back in range(_DAYS, 0, -1):
                _sell(connection, back, _SALES)
    engine.dispose()
    if missing:
        with reading(SOURCE, url, TABLE) as session:
            statements = prepare.statements(describe(session, TABLE))
        run_all(SOURCE, url, statements, TABLE)
    return url


def _sell(connection: Connection, days_back: int, number: int) -> None:
    day = connection.scalar(
        text("SELECT date_trunc('day', now(), 'UTC') - :back * interval '1 day'"), {"back": days_back}
    )
    connection.execute(text(_SOLD), {"day": day, "number": number})
