"""Stories in a browser, on a real Airflow, by Airflow's own dialogs: the form of a run, and its note.

They go on from where test_pages.py ends, or begin with three days of January.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from airflow_days import Days, seen_by, step
from airflow_dialogs import PLAIN, OwnDialogs
from playwright.sync_api import Browser
from ui.browser import Watched

pytestmark = pytest.mark.timeout(900)
# What a daily operator needs comes first, and the waits come last.
SECTIONS = [PLAIN, "Count again", "Give up", "Why", "Waits", "Advanced Options"]
# What the page of a run shows of a note: one line, beside the grid.
SEEN = 115


@contextmanager
def own_dialogs(browser: Browser, days: Days) -> Iterator[tuple[Watched, OwnDialogs]]:
    """Context manager. Give a page for Airflow's own pages: what their console says is theirs."""
    with seen_by(browser, days, "admin") as own:
        yield own, OwnDialogs(own.page, days.stack.airflow.url)


def newest(days: Days) -> int:
    ((txid,),) = days.stack.sql("SELECT max(txid) FROM txbatch.batch WHERE topology = 'days'")
    return int(txid)


def of_aa(days: Days) -> int:
    """Return the flights of AA from LGA: days of other stories have some, too."""
    return sum(flights for carrier, origin, flights in days.counted() if (carrier, origin) == ("AA", "LGA"))


def test_airflows_own_form_counts_a_batch_again_and_the_runs_page_tells_it(days: Days, browser: Browser) -> None:
    """The form suggests now, which is after the end of this DAG: the note of such a run says what to do."""
    before, counted = newest(days), of_aa(days)
    with own_dialogs(browser, days) as (own, dialogs):
        dialogs.open("days")
        assert dialogs.sections() == SECTIONS
        assert dialogs.labels("Count again") == ["Count again", "Without what is missing", "Plan first"]
        own.keep("51 the form")
        dialogs.trigger()
        told = dialogs.until_noted("txbatch: nothing was done: the logical date ")
        assert "; empty the date to" in told[:SEEN]
        own.keep("52 a run of now")
        assert newest(days) == before

        days.put(2, "B6,JFK,8", "UA,EWR,2", "AA,LGA,5")
        dialogs.open("days")
        dialogs.date(0, "")
        dialogs.fill("Count again", restate="2")
        own.keep("53 filled in")
        dialogs.fill("Why", why="the file of the 2nd was cut off")
        dialogs.trigger()
        dialogs.until_noted(f"txbatch: txid {before + 1} restates txid 2: 3 records, 3 keys")
        own.keep("54 its note")
    with seen_by(browser, days, "admin") as watched:
        watched.go(days.page("&page=batch&txid=2"))
        step(watched, "55 its batch", f"txid {before + 1} counts in its place", "“the file of the 2nd was cut off”")
    assert of_aa(days) == counted + 5
