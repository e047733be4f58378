"""The plugin: the pages where Airflow has a place for them, and no word of them in any process that is not the API server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slowness import slowness

import txbatch_plugin
from txbatch import fit
from txbatch_plugin import TxbatchPlugin

PLUGINS = Path(__file__).parents[2] / "plugins"
MILLISECONDS_MAX = 5
# What a process of Airflow does with a plugin, and which modules come with that.
LOADED = """
import json, sys, time
sys.path.insert(0, {plugins!r})
import airflow.plugins_manager, airflow.listeners, logging, re, functools
before = set(sys.modules)
began = time.perf_counter()
import txbatch_plugin
plugin = txbatch_plugin.TxbatchPlugin()
took = time.perf_counter() - began
assert txbatch_plugin.TxbatchPlugin.validate() is None
new = sorted(set(sys.modules) - before)
print(json.dumps([took, new]))
"""
BY_CLI = (
    "import sys; sys.path.insert(0, {plugins!r}); from txbatch.cli.main import main; "
    "[main.get_command(None, name) for name in main.commands]; import json; print(json.dumps(sorted(sys.modules)))"
)


OF_DAGS = ("nav", "dag", "dag_run", "task", "task_instance")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., txbatch_plugin.Pages]]:
    """What the plugin registers in an Airflow of some version, which has some places, with an application made by a function."""

    def pages(version: str, create: Any, places: Any = None, *, narrow: bool = False) -> txbatch_plugin.Pages:
        import airflow

        monkeypatch.setattr(airflow, "__version__", version)
        monkeypatch.setattr("txbatch.ui.app.create_app", create)
        if places is not None:
            monkeypatch.setattr(fit, "places_of_pages", lambda: frozenset(places))
            monkeypatch.setattr(fit, "narrows_pages", lambda: narrow)
        txbatch_plugin.pages.cache_clear()
        plugin = TxbatchPlugin()
        assert plugin.fastapi_apps is plugin.fastapi_apps
        assert plugin.external_views is plugin.external_views
        return txbatch_plugin.Pages(plugin.fastapi_apps, plugin.external_views)

    yield pages
    txbatch_plugin.pages.cache_clear()


@pytest.mark.parametrize(
    ("version", "places", "destinations"),
    [
        ("3.1.0", OF_DAGS, []),
        ("3.1.7", OF_DAGS, []),
        ("3.1.8", OF_DAGS, ["nav", "dag", "dag_run"]),
        ("3.3.2", None, ["nav", "dag", "dag_run"]),
        ("3.4.0rc1", (*OF_DAGS, "asset"), ["nav", "dag", "dag_run", "asset"]),
        ("3.10.0", (*OF_DAGS, "asset"), ["nav", "dag", "dag_run", "asset"]),
    ],
)
@pytest.mark.usefixtures("airflow_login")
def test_pages_have_the_places_that_an_airflow_has(
    registered: Callable[..., txbatch_plugin.Pages],
    version: str,
    places: tuple[str, ...] | None,
    destinations: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without places of the case, the installed Airflow is asked."""
    app = object()
    found = registered(version, lambda: app, places)
    assert [view["destination"] for view in found.views] == destinations
    assert found.apps == ([{"app": app, "url_prefix": "/txbatch", "name": "txbatch"}] if destinations else [])
    assert ("need Airflow 3.1.8 or newer" in caplog.text) is (not destinations)
    assert len({view["url_route"] for view in found.views}) == len(destinations)
    assert not [view for view in found.views if view["href"].startswith("/") or "applies_to" in view]


@pytest.mark.usefixtures("airflow_login")
def test_pages_are_on_dags_and_assets_of_txbatch_alone_where_an_airflow_can(
    registered: Callable[..., txbatch_plugin.Pages],
) -> None:
    found = registered("3.4.0", lambda: object(), (*OF_DAGS, "asset"), narrow=True)
    narrowed = {view["destination"]: view.get("applies_to") for view in found.views}
    of_dags = {"dag.tags.name": ["txbatch"]}
    assert narrowed == {"nav": None, "dag": of_dags, "dag_run": of_dags, "asset": {"asset.group": ["txbatch"]}}


@pytest.mark.parametrize(
    "error", [FileNotFoundError("page.html is missing"), ImportError("moved"), KeyError("x"), SyntaxError()]
)
@pytest.mark.usefixtures("airflow_login")
def test_pages_that_cannot_be_made_keep_no_api_server_from_starting(
    registered: Callable[..., txbatch_plugin.Pages], error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        raise error

    assert registered("3.3.2", broken) == ([], [])
    assert caplog.text.count("the pages of txbatch cannot be shown") == 1


def test_no_process_but_the_api_server_pays_for_the_pages() -> None:
    """FastAPI takes half a second: neither it nor the pages are imported with the plugin, which takes milliseconds."""
    took, new = min((loaded() for _ in range(3)), key=lambda each: float(each[0]))
    assert not {"fastapi", "airflow.api_fastapi", "txbatch.ui"} & {*new}
    assert took * 1000 <= MILLISECONDS_MAX * max(1.0, slowness()), new


def loaded() -> Any:
    return _json(LOADED.format(plugins=str(PLUGINS)))


def test_the_command_line_knows_nothing_of_the_pages() -> None:
    modules = _json(BY_CLI.format(plugins=str(PLUGINS)))
    assert not [name for name in modules if name.startswith(("fastapi", "airflow", "txbatch.ui"))]


def _json(code: str) -> Any:
    import json

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
