"""The pages in this process: their application, Airflow's own login with users of each kind, and a seeded ledger. And a browser,
with a server of the example payloads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import scoped_session, sessionmaker
from starlette.applications import Starlette
from starlette.routing import Mount
from ui.browser import chromium
from ui.examples import Examples, application, served
from ui.seeded import ONE_DAG, seed, seed_many

from txbatch.postgres.database.engine import connect

READER = "asks_for_pages"
ROLES = ("viewer", "user", "op", "admin")
GRANTS = (
    "GRANT USAGE ON SCHEMA report TO {0}; GRANT SELECT ON ALL TABLES IN SCHEMA report TO {0};"
    "GRANT USAGE ON SCHEMA state TO {0}"
)


@dataclass(frozen=True)
class Site:
    """The pages on a ledger, asked by users."""

    client: Any
    tokens: Mapping[str, str]

    def get(self, path: str, role: str | None = "admin", **options: Any) -> Any:
        """Ask for a path below /txbatch."""
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return self.client.get(path, headers=headers, **options)

    def told(self, path: str, role: str = "admin", **options: Any) -> Any:
        """Return the JSON of an answer that is expected."""
        answer = self.get(path, role, **options)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.json()


@pytest.fixture(scope="session")
def airflow_login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """A token of Airflow for a user of each role, and for `one`, who has rights on one DAG alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "AIRFLOW__API_AUTH__JWT_SECRET", "a secret of these tests alone, long enough for its algorithm " * 2
        )
        patch.delenv("TXBATCH_DATABASE_URL", raising=False)
        yield _tokens(patch, tmp_path_factory.mktemp("airflow") / "airflow.db")


def _tokens(patch: pytest.MonkeyPatch, file: Path) -> dict[str, str]:
    from airflow import settings
    from airflow.api_fastapi.app import _AuthManagerState
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from airflow.models.dag import DagModel

    import_all_models()
    engine = create_engine(f"sqlite:///{file}")
    tables = [
        Base.metadata.tables[name]
        for name in ("dag", "dag_bundle", "dag_run", "revoked_token")
        if name in Base.metadata.tables
    ]
    Base.metadata.create_all(engine, tables)
    patch.setattr(settings, "Session", scoped_session(sessionmaker(engine, expire_on_commit=False)))
    patch.setattr(settings, "engine", engine)

    class OneDag(SimpleAuthManager):
        """Airflow's own, with a user who may see one DAG."""

        def is_authorized_dag(self, *, user: Any, details: Any = None, **asked: Any) -> bool:
            if user.username == "one" and (details is None or details.id != ONE_DAG):
                return False
            return super().is_authorized_dag(user=user, details=details, **asked)

    manager = OneDag()
    patch.setattr(_AuthManagerState, "instance", manager)
    with settings.Session() as session:
        for dag_id, paused in (("flights", True), ("flights.verify", False), ("txbatch.gc", False)):
            session.add(DagModel(dag_id=dag_id, is_paused=paused, is_stale=False, bundle_name="dags", fileloc="x"))
        session.commit()
    users = {role: SimpleAuthManagerUser(username=role, role=role.upper()) for role in ROLES}
    users["one"] = SimpleAuthManagerUser(username="one", role="USER")
    return {name: manager.generate_jwt(user) for name, user in users.items()}


@pytest.fixture(scope="session")
def ledgers(new_database: Callable[[str], str]) -> Callable[[str], str]:
    """Makes a ledger, seeded or with many batches, and returns the URL by which a reader asks."""
    made: dict[str, str] = {}

    def ledger(kind: str) -> str:
        if kind not in made:
            url = new_database("migrated")
            engine = connect(url)
            (seed if kind == "seeded" else lambda engine: seed_many(engine, 20_000))(engine)
            with engine.begin() as connection:
                known = connection.exec_driver_sql(f"SELECT to_regrole('{READER}') IS NOT NULL").scalar_one()
                connection.exec_driver_sql(("" if known else f"CREATE ROLE {READER} LOGIN;") + GRANTS.format(READER))
            engine.dispose()
            made[kind] = make_url(url).set(username=READER).render_as_string(hide_password=False)
        return made[kind]

    return ledger


@pytest.fixture(scope="session")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a few bytes."""
    folder = tmp_path_factory.mktemp("static")
    (folder / "page.html").write_text("<!doctype html><title>txbatch</title>")
    (folder / "js").mkdir()
    (folder / "js" / "main.js").write_text("export {};")
    (folder / "secret.py").write_text("never served")
    return folder


@pytest.fixture(scope="session")
def site_of(airflow_login: Mapping[str, str], static: Path) -> Callable[[str], Site]:
    """The pages on the database of a URL."""
    from fastapi.testclient import TestClient

    from txbatch.ui.app import create_app

    def site(url: str) -> Site:
        app = create_app(static, lambda: (url, "the connection of a test"))
        return Site(TestClient(app, raise_server_exceptions=False), airflow_login)

    return site


@pytest.fixture(scope="session")
def pages_on(airflow_login: Mapping[str, str]) -> Callable[[str], AbstractContextManager[str]]:
    """Serves the pages on the database of a URL, below a path as Airflow may have one, and gives the address of the page."""
    from txbatch.ui.app import create_app

    @contextmanager
    def pages(url: str) -> Iterator[str]:
        app: Any = create_app(database=lambda: (url, "the connection of a test"))
        with served(Starlette(routes=[Mount("/air/txbatch", app)])) as base:
            yield f"{base}/air/txbatch/page"

    return pages


@pytest.fixture(scope="session")
def site(site_of: Callable[[str], Site], ledgers: Callable[[str], str]) -> Site:
    """The pages on the seeded ledger."""
    return site_of(ledgers("seeded"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def example_server() -> Iterator[Examples]:
    """The server of the example payloads."""
    examples = Examples()
    with served(application(examples)) as base:
        examples.base = base
        yield examples


@pytest.fixture
def examples(example_server: Examples) -> Examples:
    """The server of the example payloads, as if it were fresh."""
    example_server.reset()
    return example_server
