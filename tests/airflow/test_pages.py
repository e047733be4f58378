"""Stories in a browser, on a real Airflow, by keys alone; pictures of each step are kept in .txbatch/pictures.

In each run of the tests: a hole is found on the page and counted from there; a batch is counted again, with its plan read
before; a number is explained down to the file; a viewer sees the same, in the dark, on a phone. The other stories go on from
there.
"""

from __future__ import annotations

import pytest
from airflow_days import NO_HOLE, RUN, ZONE, Days, answered, day, seen_by, step
from playwright.sync_api import Browser
from support import until
from ui.browser import PHONE, Watched, said

pytestmark = pytest.mark.timeout(900)
AWAY = "The ledger cannot be read. Runs that need it wait or are retried; Airflow itself goes on."
# The network's own line for an answer that is an error.
ANSWERED = "Failed to load resource: the server responded with a status of"
POSTED = """async () => (await fetch("../api/v2/dags/days/dagRuns", {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ logical_date: null, conf: {} }),
})).status"""
FATE = "txid 5 counts in its place; asked for by admin: “the file of the 1st was cut off”."


def test_a_hole_is_counted_a_batch_counted_again_and_a_number_explained_by_keys_alone(
    days: Days, browser: Browser
) -> None:
    with seen_by(browser, days, "admin") as watched:
        in_its_tab_of_airflow(watched, days)
    with seen_by(browser, days, "admin") as watched:
        count_the_hole(watched, days)
        count_again(watched, days)
        explain(watched)
    with seen_by(browser, days, "viewer", viewport=PHONE, color_scheme="dark") as watched:
        look_as_viewer(watched, days)


def in_its_tab_of_airflow(watched: Watched, days: Days) -> None:
    watched.page.goto(f"{days.stack.airflow.url}/dags/days/plugin/txbatch-dag")
    frame = watched.page.frame_locator("iframe")
    frame.locator(".strip").wait_for()
    assert f"days of {ZONE} · complete up to 2013-01-02 · newest txid 3" in said(frame.locator("header"))
    assert frame.locator("html").evaluate("window.reports") == []
    watched.keep("1 in Airflow")


def count_the_hole(watched: Watched, days: Days) -> None:
    watched.go(days.page())
    step(watched, "2 transactions", "1 hole", "Nothing waits, and nothing fails.", "2013-01-04")
    watched.press("Completeness")
    hole = f"Not counted: 2013-01-03 ({ZONE}): no batch has it"
    step(watched, "3 a hole", "3 days · 1 hole between them", hole, focus="Completeness")
    watched.press("Count it…")
    box = watched.page.get_by_role("dialog")
    until(lambda: f"2013-01-03 ({ZONE}): 1 day, which no batch has." in said(box), "the hole is not named")
    watched.press("Count it")
    answered(watched, "4 counted", f"txid 4, 2013-01-03 ({ZONE}): 2 records, 2 keys", focus="Close")
    step(watched, "5 no hole", NO_HOLE, "complete up to 2013-01-04 · newest txid 4", focus="Completeness")


def count_again(watched: Watched, days: Days) -> None:
    days.put(1, "B6,JFK,125", "UA,EWR,1", "AA,LGA,7")
    watched.press("Count again…")
    watched.page.keyboard.type("1")
    watched.tab_to("why")
    watched.page.keyboard.type("the file of the 1st was cut off")
    watched.press("Plan first")
    box = watched.page.get_by_role("dialog")
    planned = "txid 1, at position 1, would be counted again: 3 records, 2 before."
    until(lambda: planned in said(box), "no plan is shown", **RUN)
    assert "state days: 2 of 3 keys would change" in said(box)
    assert "carrier origin flights B6 JFK 32 → 149" in said(box)
    assert box.locator(".scrolls").evaluate("each => each.scrollWidth <= each.clientWidth")
    watched.keep("6 planned")
    assert days.stack.sql("SELECT max(txid) FROM txbatch.batch WHERE topology = 'days'") == [(4,)]
    watched.press("Do it")
    answered(watched, "7 counted again", "txid 5 restates txid 1: 3 records", focus="Close")
    step(watched, "8 after that", "newest txid 5", focus="Count again…")
    watched.go(days.page("&page=batch&txid=1"))
    step(watched, "9 a batch", FATE, "2013-01-01.csv", "1 attempt tried, 1:1 was let through")


def explain(watched: Watched) -> None:
    watched.press("Why")
    watched.press("B6 · JFK")
    told = "as of now, txid 5", "flights 149", "4 contributions amount to the value", "until 5: txid 1"
    step(watched, "10 why", *told, "“the file of the 1st was cut off” (admin)", "2013-01-01.csv", focus="Why")
    watched.tab_to("as of now, txid 5")
    watched.page.keyboard.press("ArrowLeft")
    step(watched, "11 as of", "as of txid 4", "flights 32", focus="as of txid 4")


def look_as_viewer(watched: Watched, days: Days) -> None:
    watched.go(days.page("&page=completeness"))
    step(watched, "12 a viewer sees no hole", NO_HOLE)
    assert watched.page.get_by_role("button", name="Count again…").is_disabled()
    watched.go(days.page("&page=batch&txid=1"))
    step(watched, "13 a viewer sees a batch", FATE)
    assert watched.page.get_by_role("button", name="Count again…").last.is_disabled()
    refused = watched.page.evaluate(POSTED)
    assert refused == 403


def a_viewer_sees(browser: Browser, days: Days, query: str, picture: str, *told: str) -> None:
    """On a phone, in the dark, a viewer is told the same, and no act can be begun."""
    with seen_by(browser, days, "viewer", viewport=PHONE, color_scheme="dark") as watched:
        watched.go(days.page(query))
        step(watched, picture, *told)
        begun = [said(each) for each in watched.page.locator("button:enabled").all()]
        assert [each for each in begun if each.endswith("…")] == []


@pytest.mark.whole
def test_a_damaged_file_is_seen_taken_away_given_up_and_counted_without_a_shell(days: Days, browser: Browser) -> None:
    stack, damaged, behind = days.stack, day(5), day(6)
    days.put(5, "B6,JFK,8", "UA,EWR,x")
    days.put(6, "B6,JFK,8")
    stack.api.trigger("days", "damaged", logical_date=damaged.end, data_interval=(damaged.start, damaged.end))
    assert stack.end("days", "damaged")[0] == "failed"
    stack.api.trigger("days", "behind", logical_date=behind.end, data_interval=(behind.start, behind.end))
    ((txid,),) = stack.sql("SELECT max(txid) FROM report.batches WHERE run_id = 'damaged'")
    with seen_by(browser, days, "admin") as watched:
        watched.go(days.page())
        error = "2013-01-05.csv, line 2: field flights: 'x' is no int"
        step(watched, "21 damaged", "1 failing", error, f"for txid {txid}")
        watched.press("Explain TX301")
        answered(watched, "22 explained", "Is any number wrong?", "Mend the source", focus="Close")
        a_viewer_sees(browser, days, "", "28 a viewer sees it fail", "1 failing", error, f"for txid {txid}")
        (days.files / "2013-01-05.csv").unlink()
        watched.go(days.page(f"&page=batch&txid={txid}"))
        watched.press("Give up…")
        watched.page.keyboard.press("Space")  # its records are free
        watched.tab_to("why")
        watched.page.keyboard.type("its file is damaged")
        watched.press("Give up")
        answered(watched, "23 given up", f"txid {txid} is aborted, and its interval is free", focus="Close")
        given_up = "It was given up (", ") and counts nothing: “its file is damaged"
        step(watched, "24 after that", *given_up)
        a_viewer_sees(browser, days, f"&page=batch&txid={txid}", "29 a viewer sees it given up", *given_up)
        assert stack.end("days", "behind")[0] == "success"
        days.put(5, "B6,JFK,8", "UA,EWR,5")
        watched.go(days.page("&page=completeness"))
        hole = f"Not counted: 2013-01-05 ({ZONE}): txid {txid} was given up (", "): “its file is damaged"
        step(watched, "25 its hole", *hole)
        watched.press("Count it…")
        watched.press("Count it")
        answered(watched, "26 counted", f"2013-01-05 ({ZONE}): 2 records", focus="Close")
        step(watched, "27 whole", NO_HOLE, "complete up to 2013-01-06")
    assert stack.sql("SELECT flights FROM report.days WHERE carrier = 'UA'") == [(1 + 2 + 3 + 4 + 5,)]


@pytest.mark.whole
def test_a_paused_dag_and_a_ledger_away_are_told_where_they_are_met(days: Days, browser: Browser) -> None:
    stack = days.stack
    with seen_by(browser, days, "admin", color_scheme="dark") as watched:
        stack.api.pause("days")
        watched.go(days.page())
        step(watched, "31 paused", "the DAG is paused")
        a_viewer_sees(browser, days, "", "36 a viewer sees the pause", "the DAG is paused")
        watched.press("Count again…")
        watched.page.keyboard.type("2")
        watched.tab_to("why")
        watched.page.keyboard.type("to see that it waits")
        watched.press("Count again")
        box = watched.page.get_by_role("dialog")
        until(lambda: "The DAG is paused: the run stays queued until" in said(box), "nothing is told of a paused DAG")
        watched.keep("32 queued")
        stack.api.unpause("days")
        answered(watched, "33 goes on", "restates txid 2", focus="Close")
        assert watched.wrong() == []

        stack.outage.begin()
        until(lambda: AWAY in watched.text(), "the ledger is not told to be away", **RUN)
        assert "2013-01-04" in watched.text()
        watched.keep("34 ledger away")
        stack.outage.end()
        watched.press("Try again")
        until(lambda: AWAY not in watched.text(), "the ledger is not told to be back", **RUN)
        assert [each for each in watched.wrong() if not each.startswith(ANSWERED)] == []
        watched.keep("35 ledger back")


@pytest.mark.whole
def test_two_tabs_that_count_one_batch_again_count_it_once(days: Days, browser: Browser) -> None:
    counted = "SELECT flights FROM report.days WHERE carrier = 'B6'"
    ((before,),) = days.stack.sql(counted)
    days.put(2, "B6,JFK,9", "UA,EWR,2")
    with seen_by(browser, days, "admin") as one, seen_by(browser, days, "admin") as other:
        for watched in (one, other):
            watched.go(days.page())
            watched.press("Count again…")
            watched.page.keyboard.type("2")
            watched.tab_to("why")
            watched.page.keyboard.type("two tabs")
        for watched in (one, other):
            watched.press("Count again")
        for watched in (one, other):
            answered(watched, "41 two tabs", "restates txid 2: 2 records", focus="Close")
    assert days.stack.sql(counted) == [(before + 1,)]
