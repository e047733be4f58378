"""Pages that are interrupted: Airflow restarts, the session ends, the ledger says nothing, a topology is dropped meanwhile."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import Browser, Route
from slowness import slowness
from support import until
from ui.browser import Watched, logged_in, opened, window
from ui.examples import Examples, payload
from ui.test_acts import dialog
from ui.test_ledger_away import SECONDS_MAX, URL

FLIGHTS = "?dag_id=flights"
AWAY = "The ledger cannot be read. Runs that need it wait or are retried; Airflow itself goes on."
WHY = "the file was cut off"
REQUESTS = "**/txbatch/api/**"


def aborted(route: Route) -> None:
    """Let a request fail as one does to a server that is not there."""
    route.abort("connectionrefused")


@pytest.mark.parametrize("page", ["", "&page=batch&txid=30", "&page=completeness"])
def test_a_page_keeps_what_it_shows_while_airflow_restarts(browser: Browser, examples: Examples, page: str) -> None:
    with opened(browser, examples.url(FLIGHTS + page)) as watched:
        before = watched.page.inner_text("main")
        watched.page.route(REQUESTS, aborted)
        trouble = watched.page.get_by_role("alert")
        trouble.wait_for()
        assert "Airflow does not answer." in trouble.inner_text()
        assert all(line in watched.page.inner_text("main") for line in before.splitlines())
        watched.page.unroute(REQUESTS)
        watched.page.get_by_role("button", name="Try again").click()
        trouble.wait_for(state="detached")
        until(lambda: watched.page.inner_text("main") == before)


def test_a_click_while_airflow_restarts_is_told_and_the_page_asks_again(browser: Browser, examples: Examples) -> None:
    """A link inside asks for what was not asked yet."""
    with opened(browser, examples.url(FLIGHTS)) as watched:
        watched.page.route(REQUESTS, aborted)
        watched.page.locator(".strip [data-cell='30']").click()
        until(lambda: "Airflow does not answer." in watched.text())
        assert "Counted once" not in watched.text()
        watched.page.unroute(REQUESTS)
        watched.page.get_by_role("button", name="Try again").click()
        until(lambda: "Counted once" in watched.text())
        assert "does not answer" not in watched.text()


def test_a_session_that_ends_takes_no_word_from_a_dialog_that_is_open(browser: Browser, examples: Examples) -> None:
    with dialog(browser, examples, "&page=batch&txid=30", "Count again…") as (watched, box):
        box.get_by_label("why").fill(WHY)
        examples.instead["/turn"] = (401, payload("error_401"))
        examples.instead["airflow:POST"] = (401, payload("error_401"))
        until(lambda: "Log in" in watched.text())
        box.get_by_role("button", name="Count again").click()
        until(lambda: "Log in again, and then ask again." in box.inner_text())
        assert (box.get_by_label("why").input_value(), examples.posted) == (WHY, [])
        assert watched.page.url == examples.url(f"{FLIGHTS}&page=batch&txid=30")


def test_a_topology_that_is_dropped_meanwhile_is_told_and_comes_back(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url(FLIGHTS)) as watched:
        examples.instead["/turn"] = (404, {"detail": "topology 'flights' is not known"})
        trouble = watched.page.get_by_role("alert")
        trouble.wait_for()
        assert "Topology 'flights' is not known." in trouble.inner_text()
        examples.instead.clear()
        watched.page.get_by_role("button", name="Try again").click()
        trouble.wait_for(state="detached")


def told_of(watched: Watched, address: str) -> float:
    """Return the seconds from the first question of a page until the page tells that the ledger is away."""
    with watched.page.expect_request("**/turn?**"):
        watched.page.goto(address + FLIGHTS, wait_until="commit")
    began = time.monotonic()
    watched.page.get_by_text(AWAY).wait_for()
    return time.monotonic() - began


@pytest.mark.parametrize("silent", [True, False], ids=["says nothing", "is gone"])
def test_a_ledger_that_is_away_is_told_on_the_page_within_three_seconds(
    browser: Browser,
    airflow_login: Mapping[str, str],
    pages_on: Callable[[str], AbstractContextManager[str]],
    silent: bool,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=50) as server,
        pages_on(URL.format("127.0.0.1", server.getsockname()[1] if silent else 1)) as address,
        window(browser, **logged_in(airflow_login["admin"])) as watched,
    ):
        assert told_of(watched, address) <= SECONDS_MAX * max(1.0, slowness())
        assert watched.page.get_by_role("button", name="Try again").is_enabled()
        assert "geheim" not in watched.page.content()
