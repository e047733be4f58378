"""Numbers, days and durations in words, by the page's own functions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest
from playwright.sync_api import Browser, Page
from ui.browser import opened
from ui.examples import STATIC, Examples

from txbatch.core.text import WHY_MAX

NEW_YORK = "America/New_York"


@pytest.fixture(scope="module")
def page(browser: Browser, example_server: Examples) -> Iterator[Page]:
    with opened(browser, example_server.url("?dag_id=orders")) as watched:
        yield watched.page


def call(page: Page, name: str, *arguments: object, of: str = "words") -> object:
    """Call a function of a script of the page."""
    return page.evaluate(
        "async ([of, name, given]) => (await import(`./static/js/${of}.js`))[name](...given)",
        [of, name, list(arguments)],
    )


@pytest.mark.parametrize(
    ("start", "end", "zone", "told"),
    [
        ("2013-01-02T05:00:00Z", "2013-01-03T05:00:00Z", NEW_YORK, "2013-01-02"),
        ("2013-03-10T05:00:00Z", "2013-03-11T04:00:00Z", NEW_YORK, "2013-03-10"),  # a day of 23 hours
        ("2013-11-03T04:00:00Z", "2013-11-04T05:00:00Z", NEW_YORK, "2013-11-03"),  # and of 25
        ("2013-01-02T05:00:00Z", "2013-01-05T05:00:00Z", NEW_YORK, "2013-01-02 to 2013-01-04"),
        ("2013-01-02T05:00:00Z", "2013-01-03T05:00:00Z", None, "2013-01-02 05:00 to 2013-01-03 05:00"),
        ("2013-01-02T10:00:00Z", "2013-01-02T11:00:00Z", "UTC", "2013-01-02 10:00\N{EN DASH}11:00"),
        ("2013-01-02T23:00:00Z", "2013-01-03T00:00:00Z", "UTC", "2013-01-02 23:00\N{EN DASH}00:00"),
        ("2013-01-02T00:00:00Z", "2013-01-03T00:00:00Z", "No/Such", "2013-01-02"),
        (None, None, "UTC", "\N{EN DASH}"),
    ],
)
def test_an_interval_is_told_in_the_days_of_its_zone(
    page: Page, start: str | None, end: str | None, zone: str | None, told: str
) -> None:
    assert call(page, "covers", start, end, zone) == told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("9007199254740993", "9,007,199,254,740,993"),
        ("-1234.5678", "-1,234.5678"),
        ("999", "999"),
        ("2013-01-02.csv", "2013-01-02.csv"),
        ("1e+20", "1e+20"),
        (None, "\N{EN DASH}"),
    ],
)
def test_a_number_stays_as_it_is_digit_by_digit(page: Page, given: str | None, told: str) -> None:
    assert call(page, "digits", given) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.04, "0.0 s"), (9.2, "9.2 s"), (42.4, "42 s"), (240, "4 min"), (7200, "2 h"), (172800, "2 days")],
)
def test_a_duration_is_told_in_its_greatest_unit(page: Page, seconds: float, told: str) -> None:
    assert call(page, "took", seconds) == told


@pytest.mark.parametrize(
    ("start", "zone", "then"),
    [
        ("2013-01-02T22:00:00Z", "UTC", "2013-01-03T22:00:00Z"),
        ("2013-03-10T05:00:00Z", NEW_YORK, "2013-03-11T04:00:00Z"),  # a day of 23 hours
        ("2013-11-03T04:00:00Z", NEW_YORK, "2013-11-04T05:00:00Z"),  # and of 25
        ("2013-03-09T11:00:00Z", NEW_YORK, "2013-03-10T10:00:00Z"),  # from 6 to 6 by the clock
        ("2013-10-19T03:00:00Z", "America/Sao_Paulo", "2013-10-20T03:00:00Z"),  # no midnight is there
    ],
)
def test_days_that_are_missing_begin_at_one_time_of_day(page: Page, start: str, zone: str, then: str) -> None:
    begin, end = (datetime.fromisoformat(each).timestamp() * 1000 for each in (start, then))
    assert call(page, "after", begin, 24, zone, of="calendar") == end


def test_rows_of_one_key_are_all_drawn(page: Page) -> None:
    drawn = """async () => {
      const { h, morph } = await import("./static/js/dom.js");
      const list = (...texts) => h("ul", {}, texts.map((each) => h("li", { "data-key": "same" }, each)));
      const old = list("a", "b");
      const told = [];
      for (const fresh of [["c", "d", "e"], ["f"]]) {
        morph(old, list(...fresh));
        told.push(old.textContent);
      }
      return told;
    }"""
    assert page.evaluate(drawn) == ["cde", "f"]


def test_an_empty_part_of_a_key_stays_in_a_query(page: Page) -> None:
    given = {"key": ["", "JFK", None], "show": "", "before": None, "first": 0}
    assert call(page, "search", given, of="api") == "key=&key=JFK&first=0"


@pytest.mark.parametrize(
    ("given", "told"),
    [("a\u202eb", "a\\u202eb"), ("\x1b[31m", "\\u001b[31m"), ("line\nline", "line\nline"), ("\u200bß", "\\u200bß")],
)
def test_characters_that_nobody_sees_are_written_out(page: Page, given: str, told: str) -> None:
    assert call(page, "plain", given, of="dom") == told


@pytest.mark.parametrize(
    ("note", "told"),
    [
        (
            r"txbatch: failed: '\<b>' is no int: ![x]\(y) of \*.csv",
            "txbatch: failed: '<b>' is no int: ![x](y) of *.csv",
        ),
        (r"txbatch: see `a \* b`, C:\temp and \\\*", r"txbatch: see `a \* b`, C:\temp and \*"),
        (r"my own \* note", r"my own \* note"),
    ],
)
def test_a_note_that_is_written_for_airflow_is_told_as_its_text(page: Page, note: str, told: str) -> None:
    assert call(page, "plain", note) == told


def test_a_reason_is_as_long_as_the_form_of_a_run_takes_it() -> None:
    assert f"const WHY_MAX = {WHY_MAX};" in (STATIC / "js" / "acts.js").read_text()
