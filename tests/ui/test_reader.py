"""The database of the pages: looked up again after some time and after a failed connect, and never exchanged for another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from sqlalchemy import make_url

from txbatch import settings
from txbatch.core.errors import Unavailable
from txbatch.ui import reader
from txbatch.ui.reader import Reader

NOWHERE = "postgresql+psycopg2://{0}@127.0.0.1:1/nothing"
FOUND, FALLBACK = "the Airflow connection 'txbatch_report'", settings.DATABASE_URL


def looking(*found: tuple[str, str]) -> tuple[Callable[[], tuple[str, str]], list[str]]:
    """A look-up that finds one after the other, and then the last for ever; and the names looked up so far."""
    asked: list[str] = []

    def look() -> tuple[str, str]:
        user, what = found[min(len(asked), len(found) - 1)]
        asked.append(user)
        return NOWHERE.format(user), what

    return look, asked


def test_a_connection_is_kept_and_a_fallback_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FALLBACK_SECONDS", 0)
    look, asked = looking(("embedded", FALLBACK), ("report", FOUND), ("never", FOUND))
    pages = Reader(look)
    users = [pages.engine.url.username for _ in range(4)]
    assert (users, asked) == (["embedded", "report", "report", "report"], ["embedded", "report"])


def test_a_url_that_is_the_same_keeps_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "KEPT_SECONDS", 0)
    look, asked = looking(("report", FOUND))
    pages = Reader(look)
    assert pages.engine is pages.engine
    assert len(asked) == 2


def test_a_failed_connect_looks_the_url_up_again() -> None:
    look, asked = looking(("old", FOUND), ("new", FOUND))
    pages = Reader(look)
    with pytest.raises(Unavailable), pages.snapshot():
        pass
    assert pages.engine.url.username == "new"
    assert asked == ["old", "new"]


@pytest.mark.usefixtures("airflow_login")
def test_no_other_database_answers_for_a_connection_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    from txbatch.ui import airflow_auth

    there: Mapping[str, str] = {"txbatch": "writer"}

    def get(conn_id: str) -> Any:
        if conn_id not in there:
            raise AirflowNotFoundException(conn_id)
        return Connection(conn_id=conn_id, uri=f"postgres://{there[conn_id]}:geheim@db.example/x")

    monkeypatch.delenv(settings.DATABASE_URL, raising=False)
    monkeypatch.setattr(airflow_auth, "_seen", set())
    monkeypatch.setattr(airflow_auth.Connection, "get_connection_from_secrets", get)

    def user() -> str | None:
        return make_url(airflow_auth.database()[0]).username

    assert user() == "writer"
    there = {"txbatch": "writer", "txbatch_report": "reads"}
    assert user() == "reads"
    there = {"txbatch": "writer"}
    with pytest.raises(Unavailable, match="was there"):
        user()
    there = {"txbatch_report": "reads"}
    assert user() == "reads"
