"""Addresses of the page that somebody has made up: names that no topology has, steps between folders, txids that are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser
from ui.browser import Watched, logged_in, opened, window
from ui.examples import Examples, payload
from ui.seeded import HOSTILE_RUN, RTL, TAG, WAITING
from ui.test_pages import ANSWERED

NAMES = [
    *(
        "~",
        ".",
        "..",
        "-x",
        "a/b",
        "flights/",
        "flights/..",
        "flights/../clicks",
        "flights?x=1",
        "flights#x",
        "flights%2F",
    ),
    *("flights/runs/x", "flights/batches/1", "%7E", "*", "a b", TAG, RTL, "é", "x" * 3_000),
]
TXIDS = ["0", "-1", "1e3", "1.5", "9223372036854775808", TAG, f"1{RTL}", "1/changes", "..", " "]


@pytest.fixture(scope="module")
def address(pages_on: Callable[[str], AbstractContextManager[str]], ledgers: Callable[[str], str]) -> Iterator[str]:
    """The page."""
    with pages_on(ledgers("seeded")) as page:
        yield page


@pytest.fixture
def watched(browser: Browser, airflow_login: Mapping[str, str]) -> Iterator[Watched]:
    """An empty page of an administrator."""
    with window(browser, **logged_in(airflow_login["admin"])) as found:
        yield found


def wrong(watched: Watched) -> list[str]:
    """What went wrong, without the network's own line for an answer that is an error."""
    return [each for each in watched.wrong() if not each.startswith(ANSWERED)]


def test_a_name_that_no_topology_has_is_told_as_no_topology(watched: Watched, address: str) -> None:
    for name in NAMES:
        watched.go(f"{address}?dag_id={quote(name, safe='')}")
        assert watched.text() == "No topology of txbatch.", name
        assert wrong(watched) == [], name


def test_a_txid_that_is_none_is_told_and_nothing_else_is_shown(watched: Watched, address: str) -> None:
    for txid in TXIDS:
        watched.go(f"{address}?dag_id=flights&page=batch&txid={quote(txid, safe='')}")
        text = watched.text()
        assert "Txid is a number from 1 to 9223372036854775807." in text, txid
        assert "Counted once" not in text, txid
        assert watched.page.locator("#page img").count() == 0
        assert wrong(watched) == [], txid


def test_a_run_is_found_by_a_name_with_all_that_an_address_means_something_by(watched: Watched, address: str) -> None:
    watched.go(f"{address}?dag_id=flights&run_id={quote(HOSTILE_RUN, safe='')}")
    assert f"txid {WAITING}" in watched.page.inner_text("h2")
    assert watched.page.locator("#page img").count() == 0
    assert wrong(watched) == []


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_of_dots_is_no_step_to_another_thing(browser: Browser, examples: Examples, name: str) -> None:
    """A browser takes dots alone out of a path, and would ask for what is called as the next part of the path is."""
    examples.instead["turn"] = (200, payload("topology"))
    with opened(browser, examples.url(f"?dag_id={name}")) as watched:
        assert watched.text() == "No topology of txbatch."
        assert watched.wrong() == []
    examples.instead.clear()
    with opened(browser, examples.url(f"?dag_id=flights&run_id={name}")) as watched:
        assert "There is no such thing." in watched.text()
        assert watched.wrong() == []
    assert [each for each in examples.asked if "turn" not in each] == []
