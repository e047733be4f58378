"""The pages in a browser, on a seeded ledger, by the routes that Airflow serves and its own login."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest
from playwright.sync_api import Browser
from ui.browser import PHONE, logged_in, opened, window
from ui.seeded import TAG

FLIGHTS = "?dag_id=flights"
PAGES = {
    "topologies": ("", ["clicks", "flights", "orders"]),
    "transactions": (
        FLIGHTS,
        [
            *("days of America/New_York · complete up to 2013-01-12 · newest txid 34", "txid 31 committed", "1 hole"),
            *("the DAG is paused", "counted again by 31", "counts in place of 2", "failing"),
            *(TAG, "aborted", "1 failing", "times of UTC"),
        ],
    ),
    "completeness": (
        f"{FLIGHTS}&page=completeness",
        ["2013-01", "1 hole between them", "Not counted: 2013-01-13 (America/New_York): no batch has it"],
    ),
    "partitions": (
        "?dag_id=clicks&page=completeness",
        ["1 partition cannot be read", "part-00002.txt", "\\u202etxt.cod"],
    ),
    "batch": (
        f"{FLIGHTS}&page=batch&txid=30",
        [
            "covers 2013-01-31",
            "2 attempts tried, 30:2 was let through",
            "summed by stream and partition",
            "the driver was killed",
            ".csv",
        ],
    ),
    "replaced": (
        f"{FLIGHTS}&page=batch&txid=2",
        ["It does not count any more: txid 31 counts in its place; asked for by ana: “the file of the 2nd was cut off"],
    ),
    "why": (
        f"{FLIGHTS}&page=why&state=flights&key=B6&key=JFK",
        [
            "as of now, txid 31",
            "contributions amount to the value",
            "until 31: txid 2",
            "the file of the 2nd was cut off",
        ],
    ),
    "hostile why": (
        f"{FLIGHTS}&page=why&state=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E&key=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E",
        ["12345678901234567890123456789012345678", "30 contributions amount to the value", "\\u202etotal"],
    ),
    "changes": (f"{FLIGHTS}&page=changes&state=flights", ["1 key differs between txid 30 and txid 31", "B6"]),
    "run": (
        f"{FLIGHTS}&run_id=manual__2026-11-27T10%3A31%3A00%2B00%3A00",
        ["It counts in place of txid 2", "ana", "covers 2013-01-02"],
    ),
    "nothing yet": ("?dag_id=orders", ["No batch yet, and Airflow has no DAG of this topology."]),
}


@pytest.fixture(scope="module")
def address(pages_on: Callable[[str], AbstractContextManager[str]], ledgers: Callable[[str], str]) -> Iterator[str]:
    """The page, where Airflow serves it."""
    with pages_on(ledgers("seeded")) as page:
        yield page


@pytest.mark.parametrize(
    ("role", "settings"),
    [("admin", {}), ("viewer", {"viewport": PHONE, "color_scheme": "dark"})],
    ids=["admin", "viewer on a phone"],
)
def test_each_page_says_what_the_ledger_holds(
    browser: Browser, airflow_login: Mapping[str, str], address: str, role: str, settings: dict[str, Any]
) -> None:
    with opened(browser, address, **logged_in(airflow_login[role]), **settings) as watched:
        for name, (query, words) in PAGES.items():
            watched.go(address + query)
            text = watched.text()
            assert [each for each in words if each not in text] == [], (name, text)
            assert watched.sideways() <= 0, name
            assert watched.page.locator("#page img").count() == 0
            assert watched.wrong() == [], name
        watched.go(address + FLIGHTS)
        assert watched.page.get_by_role("button", name="Count again…").is_enabled() is (role == "admin")


def test_who_has_one_dag_sees_one_dag(browser: Browser, airflow_login: Mapping[str, str], address: str) -> None:
    with opened(browser, address, **logged_in(airflow_login["one"])) as watched:
        assert "flights" in watched.text()
        assert "clicks" not in watched.text()
        watched.go(f"{address}?dag_id=clicks")
        assert "You may not read the runs of this DAG." in watched.text()


def test_who_is_not_logged_in_is_led_to_the_login(browser: Browser, address: str) -> None:
    with window(browser) as watched:
        watched.page.goto(address + FLIGHTS, wait_until="commit")
        watched.page.wait_for_url("**/air/api/v2/auth/login?next=**")
