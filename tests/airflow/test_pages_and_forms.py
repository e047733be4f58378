"""Stories in a browser, on a real Airflow, by Airflow's own dialogs: the form of a run, the backfill, the note of a run.

They go on from where test_pages.py ends, or begin with three days of January.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from airflow_days import NO_HOLE, ZONE, Days, seen_by, step
from airflow_dialogs import PLAIN, OwnDialogs
from playwright.sync_api import Browser
from support import until
from ui.browser import PHONE, Watched

pytestmark = pytest.mark.timeout(900)
# What a daily operator needs comes first, and the waits come last.
SECTIONS = [PLAIN, "Count again", "Give up", "Why", "Waits", "Advanced Options"]
# What the page of a run shows of a note: one line, beside the grid.
SEEN = 115
LAST_WEEK = range(25, 32)
OF_LAST_WEEK = """
SELECT count(*) FROM report.batches
 WHERE topology = 'days' AND status = 'committed' AND kind = 'ordinary'
   AND interval_start BETWEEN '2013-01-25T05:00Z' AND '2013-01-31T05:00Z'
"""


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


@pytest.mark.whole
def test_a_month_is_counted_by_a_backfill_and_by_catching_up_and_the_page_shows_it(
    days: Days, browser: Browser
) -> None:
    for number in range(1, 32):
        if not days.file(number).exists():
            days.put_usual(number)
    with own_dialogs(browser, days) as (own, dialogs), seen_by(browser, days, "admin") as watched:
        backfill_the_last_week(own, days, dialogs)
        watched.go(days.page("&page=completeness"))
        step(watched, "63 a hole", "between them", f"to 2013-01-24 ({ZONE}): no batch has it")
        dialogs.open("days")
        dialogs.date(0, "")
        dialogs.fill(PLAIN, catch_up="2013-01-01/2013-02-01")
        own.keep("64 catch up")
        dialogs.trigger()
        dialogs.until_noted(f"to 2013-01-25 00:00 ({ZONE}): ")
        own.keep("65 caught up")
        watched.go(days.page("&page=completeness"))
        step(watched, "66 the month", NO_HOLE, "none missing between them", "complete up to 2013-01-31")
    a_viewer_reads(browser, days)
    assert days.counted() == days.by_hand()


def backfill_the_last_week(own: Watched, days: Days, dialogs: OwnDialogs) -> None:
    """By the dates of the UI, which are in UTC here: each day of New York begins at five o'clock of its own date."""
    dialogs.backfill("days", "2013/01/25", "2013/01/31")
    own.keep("61 backfill")
    dialogs.run_backfill(len(LAST_WEEK))
    until(lambda: days.stack.sql(OF_LAST_WEEK) == [(len(LAST_WEEK),)], "the week is not counted", seconds=480, every=1)
    runs = [run for run in days.stack.api.dag_runs("days") if run["run_type"] == "backfill"]
    assert sorted(run["data_interval_start"][:10] for run in runs) == [f"2013-01-{number}" for number in LAST_WEEK]
    assert days.stack.end("days", runs[0]["dag_run_id"])[0] == "success"
    dialogs.go_to_run("days", runs[0]["dag_run_id"])
    dialogs.until_noted(f"{runs[0]['data_interval_start'][:10]} ({ZONE}): 2 records, 2 keys, 1 attempt")
    own.keep("62 a run of it")


def a_viewer_reads(browser: Browser, days: Days) -> None:
    """On a phone, in the dark: the month, and the note of a run."""
    with seen_by(browser, days, "viewer", viewport=PHONE, color_scheme="dark") as watched:
        watched.go(days.page("&page=completeness"))
        step(watched, "67 a viewer sees the month", NO_HOLE, "complete up to 2013-01-31")
        dialogs = OwnDialogs(watched.page, days.stack.airflow.url)
        dialogs.go_to_run("days", days.stack.api.dag_runs("days")[-1]["dag_run_id"])
        dialogs.until_noted("txbatch: ")
