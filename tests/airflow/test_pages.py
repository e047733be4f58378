"""A story in a browser, on a real Airflow: a hole is found on the page and counted from there, and a batch is counted again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import httpx
import pytest
from airflow_support import Stack
from playwright.sync_api import Frame, Page
from support import until
from ui.browser import WIDE, Watched, chromium

pytestmark = pytest.mark.timeout(400)
NEW_YORK = ZoneInfo("America/New_York")
RUN = {"seconds": 240.0, "every": 0.5}


def day(number: int) -> datetime:
    return datetime(2013, 1, number, tzinfo=NEW_YORK)


@pytest.fixture(scope="module")
def counted(stack: Stack) -> Stack:
    """Three days are counted: the 1st, the 2nd and the 4th of January."""
    runs = [
        stack.api.trigger(
            "days", f"day-{number}", logical_date=day(number + 1), data_interval=(day(number), day(number + 1))
        )
        for number in (1, 2, 4)
    ]
    for run in runs:
        assert stack.end("days", run)[0] == "success"
    return stack


@pytest.fixture
def page(counted: Stack) -> Iterator[Page]:
    """A browser in which the admin is logged in."""
    airflow = counted.airflow
    password = json.loads(airflow.password_file.read_text())[airflow.username]
    answer = httpx.post(f"{airflow.url}/auth/token", json={"username": airflow.username, "password": password})
    with chromium() as browser:
        context = browser.new_context(viewport=WIDE, timezone_id="UTC", locale="en-GB")
        context.add_cookies([{"name": "_token", "value": answer.json()["access_token"], "url": airflow.url}])
        yield context.new_page()
        context.close()


def tab(page: Page, stack: Stack) -> Frame:
    """The frame of the DAG's tab."""
    page.goto(f"{stack.airflow.url}/dags/days/plugin/txbatch-dag")
    found = until(lambda: next((each for each in page.frames if "/txbatch/page" in each.url), None))
    found.wait_for_selector(".strip")
    return found


def text(frame: Frame, selector: str) -> str:
    return " ".join(frame.inner_text(selector).split())


def test_a_hole_is_found_counted_and_a_batch_counted_again_from_the_page(page: Page, counted: Stack) -> None:
    watched = Watched(page)
    frame = tab(page, counted)
    assert "days of America/New_York · whole up to 2013-01-02 · newest txid 3" in text(frame, "header")
    assert "1 hole" in text(frame, "#page")

    frame.click("nav >> text=Completeness")
    frame.click("text=Count it…")
    assert "2013-01-03 (America/New_York): 1 day, which no batch has." in text(frame, "dialog")
    watched.listen()
    frame.click("dialog >> text='Count it'")
    until(lambda: "txid 4, 2013-01-03" in text(frame, "dialog"), **RUN)
    page.keyboard.press("Escape")
    until(lambda: "No hole: every interval between the first and the last is counted." in text(frame, "#page"))
    assert counted.sql(
        "SELECT txid FROM report.batches WHERE topology = 'days' AND status = 'committed' ORDER BY txid"
    ) == [
        (1,),
        (2,),
        (3,),
        (4,),
    ]

    frame.click(".calendar [data-cell] >> nth=0")
    frame.wait_for_selector("text=Counted once")
    frame.click(".title >> text=Count again…")
    frame.fill("dialog [name=why]", "the file of the 1st was cut off")
    frame.click("dialog >> text='Count again'")
    until(lambda: "txid 5 restates txid 1" in text(frame, "dialog"), **RUN)
    page.keyboard.press("Escape")
    until(lambda: "counts in its place; asked for by admin: “the file of the 1st was cut off”" in text(frame, "#page"))

    frame.click("nav >> text=Why")
    frame.click(".keys a")
    frame.wait_for_selector("text=4 contributions amount to the value")
    assert "until 5: txid 1" in text(frame, "#page")
    assert watched.errors == []
