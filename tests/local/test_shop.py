"""The shop of the examples: made once in the embedded PostgreSQL, known to commands, and read by a role that cannot write."""

from __future__ import annotations

from pathlib import Path

import psycopg2
import pytest
from databases import server_home, session

from txbatch import PostgresIntervalSpout, PostgresSpout, settings
from txbatch.embedded import postgres
from txbatch.local import shop

FIELDS = "id bigint, shop string, amount decimal(12,2), sold_at timestamp"


def test_the_shop_is_made_once_and_sells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server_home(tmp_path) as home:
        monkeypatch.setenv("TXBATCH_HOME", str(home))
        monkeypatch.delenv("TXBATCH_DATABASE_URL", raising=False)
        try:
            url = shop.demo_source(shop.SOURCE)
            assert url is not None
            assert shop.ensure_shop(home) == url
            begun, start = list[Path](), postgres.start
            monkeypatch.setattr(postgres, "start", lambda home: (begun.append(home), start(home))[1])
            shop.sell(home, 5, 0)
            shop.sell(home, 3, 1)
            assert begun == [home, home], "once for each call"
            monkeypatch.setenv(settings.source_variable(shop.SOURCE), url)
            with session(url) as ask:
                assert ask("SELECT count(*), count(DISTINCT sold_at::date) FROM shop.sale") == [(7 * 200 + 8, 8)]
                with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                    ask("INSERT INTO shop.sale (shop, amount) VALUES ('Soho', 1)")
            for spout in (
                PostgresSpout(shop.TABLE, FIELDS, source=shop.SOURCE),
                PostgresIntervalSpout(shop.TABLE, FIELDS, source=shop.SOURCE, time="sold_at"),
            ):
                assert "is read by the role 'shop_reader'" in (spout.reach({}) or "")
        finally:
            postgres.stop(home)


def test_only_the_source_of_the_examples_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no server is started for who has another database."""
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path))
    monkeypatch.delenv("TXBATCH_DATABASE_URL", raising=False)
    assert shop.demo_source("shop") is None
    monkeypatch.setenv("TXBATCH_DATABASE_URL", "postgresql://me@here/ledger")
    assert shop.demo_source(shop.SOURCE) is None
    assert not (tmp_path / "postgres").exists()
