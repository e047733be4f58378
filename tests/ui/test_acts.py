"""The dialogs of acts in a browser: what is told before, which run is triggered, and Airflow's answer word for word."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator
from support import until
from ui.browser import Watched, opened, said
from ui.examples import CHANGED, Examples, payload

RUNS = "dags/flights/dagRuns"


@contextmanager
def dialog(browser: Browser, examples: Examples, query: str, opener: str) -> Iterator[tuple[Watched, Locator]]:
    """Context manager. Open a page, and the dialog of one of its buttons by the keyboard."""
    with opened(browser, examples.url(f"?dag_id=flights{query}")) as watched:
        watched.page.get_by_role("button", name=opener).last.focus()
        watched.page.keyboard.press("Enter")
        found = watched.page.get_by_role("dialog")
        found.wait_for()
        yield watched, found


def test_counting_again_tells_what_counts_now_and_triggers_a_run(browser: Browser, examples: Examples) -> None:
    with dialog(browser, examples, "&page=batch&txid=30", "Count again…") as (watched, box):
        assert "txid 30 counts there now: 859 records, 31 keys of flights, took 2 min." in said(box)
        assert "never half" in said(box)
        box.get_by_role("button", name="Count again").click()
        assert examples.posted == []  # without a reason no run
        box.get_by_label("why").fill("a bad <b>file</b>")
        box.get_by_role("button", name="Count again").click()
        until(lambda: CHANGED in said(box))
        conf = {"restate": "30", "why": "a bad <b>file</b>"}
        assert examples.posted == [(RUNS, {"logical_date": None, "conf": conf})]
        assert "manual__2026-11-27T12:00:00+00:00" in said(box)
        watched.page.keyboard.press("Escape")
        box.wait_for(state="detached")
        assert watched.focused() == "Count again…"
        assert (watched.wrong(), watched.nameless()) == ([], [])


def test_a_plan_is_shown_before_and_done_by_one_more_button(browser: Browser, examples: Examples) -> None:
    """A plan needs no reason; what is done needs one."""
    with dialog(browser, examples, "&page=batch&txid=30", "Count again…") as (watched, box):
        box.get_by_role("button", name="Plan first").click()
        until(lambda: "would be counted again: 860 records, 859 before." in said(box))
        assert "state flights: 2 of 31 keys would change" in said(box)
        assert "376 → 377" in said(box)
        assert "9007199254740993 → 9007199254740995" in said(box)
        assert "<img src=x onerror=alert(1)>" in said(box)
        assert examples.posted[0][1]["conf"] == {"restate": "30", "why": "", "plan_only": True}
        box.get_by_role("button", name="Do it").click()
        assert len(examples.posted) == 1
        box.get_by_label("why").fill("why not")
        box.get_by_role("button", name="Do it").click()
        until(lambda: len(examples.posted) == 2)
        assert examples.posted[1][1]["conf"] == {"restate": "30", "why": "why not"}
        assert watched.wrong() == []


def test_batches_are_named_where_the_header_is_asked(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url("?dag_id=flights")) as watched:
        watched.page.get_by_role("button", name="Count again…").click()
        box = watched.page.get_by_role("dialog")
        box.get_by_label("txids or an interval").fill(" 2013-01-03/2013-01-05 ")
        box.get_by_label("why").fill("x")
        box.get_by_role("button", name="Count again").click()
        until(lambda: examples.posted)
        assert examples.posted[0][1]["conf"] == {"restate": "2013-01-03/2013-01-05", "why": "x"}


def test_a_hole_is_counted_by_a_run_of_exactly_its_interval(browser: Browser, examples: Examples) -> None:
    with dialog(browser, examples, "&page=completeness", "Count it…") as (watched, box):
        assert "2013-01-13 (America/New_York): 1 day, which no batch has." in said(box)
        box.get_by_role("button", name="Count it").click()
        until(lambda: examples.posted)
        conf = {"catch_up": "2013-01-13T05:00:00Z/2013-01-14T05:00:00Z"}
        assert examples.posted == [(RUNS, {"logical_date": None, "conf": conf})]
        assert watched.wrong() == []


def test_a_hole_is_also_opened_by_its_cell(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url("?dag_id=flights&page=completeness")) as watched:
        watched.page.locator(".calendar .look-hole").click()
        watched.page.get_by_role("dialog").get_by_text("which no batch has").wait_for()


@pytest.mark.parametrize(
    ("choice", "conf"), [("free its records", {}), ("count its records as read", {"abort_skip": True})]
)
def test_an_open_batch_is_given_up(browser: Browser, examples: Examples, choice: str, conf: dict[str, object]) -> None:
    """What becomes of the records is asked: nothing is chosen before, and the focus goes to what is missing."""
    with dialog(browser, examples, "&page=batch&txid=33", "Give up…") as (watched, box):
        assert "counts nothing yet" in said(box)
        box.get_by_label("why").fill("its file is damaged")
        box.get_by_role("button", name="Give up").click()
        assert watched.focused() == "free its records: Count it… reads them again"
        assert examples.posted == []
        box.get_by_label(choice).check()
        box.get_by_role("button", name="Give up").click()
        until(lambda: examples.posted)
        assert examples.posted[0][1]["conf"] == {"abort": 33, "why": "its file is damaged", **conf}
        assert (watched.wrong(), watched.nameless()) == ([], [])


@pytest.mark.parametrize("choice", ["free its records", "count its records as read"])
def test_once_a_batch_is_given_up_the_dialog_leads_on_and_nothing_is_left_to_press(
    browser: Browser, examples: Examples, choice: str
) -> None:
    with dialog(browser, examples, "&page=batch&txid=33", "Give up…") as (watched, box):
        box.get_by_label(choice).check()
        box.get_by_label("why").fill("its file is damaged")
        box.get_by_role("button", name="Give up").focus()
        watched.page.keyboard.press("Enter")
        until(lambda: "is done" in said(box))
        until(lambda: watched.focused() == "Close")
        assert [said(each) for each in box.get_by_role("button").all()] == ["Close"]
        assert (box.locator("input").count(), "counts nothing yet" in said(box)) == (0, False)
        free = choice == "free its records"
        way = "Nothing counts its interval now. Count it… does, on this page or on Completeness."
        assert (way in said(box)) == free
        assert (watched.wrong(), watched.nameless()) == ([], [])
        if free:
            box.get_by_role("link", name="Completeness").click()
            box.wait_for(state="detached")
            watched.page.wait_for_url("**page=completeness**")


def test_what_was_given_up_is_counted_from_its_own_page(browser: Browser, examples: Examples) -> None:
    given_up = payload("batch_failing")
    given_up["batch"] |= {"status": "aborted", "failing": False, "reason": "damaged"}
    examples.instead["/batches/33?"] = (200, given_up)
    with dialog(browser, examples, "&page=batch&txid=33", "Count it…") as (watched, box):
        assert "“damaged”. No batch has all of its interval now. Count it… as on Completeness" in watched.text()
        assert "2013-02-01 (America/New_York): 1 day, which no batch has." in said(box)
        box.get_by_role("button", name="Count it").click()
        until(lambda: examples.posted)
        conf = {"catch_up": "2013-02-01T05:00:00Z/2013-02-02T05:00:00Z"}
        assert examples.posted == [(RUNS, {"logical_date": None, "conf": conf})]
        assert watched.wrong() == []


def test_of_one_partition_records_can_only_be_counted_as_read(browser: Browser, examples: Examples) -> None:
    examples.instead["/batches/99000"] = (200, payload("batch_failing"))
    with opened(browser, examples.url("?dag_id=clicks&page=batch&txid=99000")) as watched:
        watched.page.get_by_role("button", name="Give up…").click()
        box = watched.page.get_by_role("dialog")
        free, read = box.get_by_label("free its records"), box.get_by_label("count its records as read")
        free.check()
        box.get_by_label("of one partition alone").fill("south")
        assert (free.is_disabled(), read.is_checked()) == (True, True)
        box.get_by_label("of one partition alone").fill("")
        assert (free.is_enabled(), read.is_checked()) == (True, False), "of all records the loss is chosen anew"
        box.get_by_label("of one partition alone").fill("south")
        box.get_by_label("why").fill("x")
        box.get_by_role("button", name="Give up").click()
        until(lambda: examples.posted)
        assert examples.posted[0][1]["conf"] == {
            **{"abort": 33, "why": "x"},
            **{"abort_skip": True, "abort_partition": "south"},
        }


def test_verifying_triggers_the_dag_that_verifies(browser: Browser, examples: Examples) -> None:
    with dialog(browser, examples, "", "Verify…") as (watched, box):
        assert "flights.verify reads committed batches again" in said(box)
        box.get_by_role("button", name="Verify").click()
        until(lambda: examples.posted)
        assert examples.posted == [("dags/flights.verify/dagRuns", {"logical_date": None, "conf": {}})]
        until(lambda: "state flights DIFFERENT B6, JFK; UA, \\u202eRWE rows were changed by hand <b>" in said(box))
        assert (watched.wrong(), watched.nameless()) == ([], [])


def test_what_a_run_works_on_is_told_and_its_batches_are_linked_in_the_end(
    browser: Browser, examples: Examples
) -> None:
    """While the run works its batches come with the turns of the page; in the end one more request asks for them."""
    run = {"dag_run_id": "manual__x", "state": "running", "note": None}
    examples.instead["dagRuns/manual"] = (200, run)
    examples.instead["runs/manual"] = (200, payload("run"))
    (batch,) = payload("run")["batches"]
    planned = batch | {"txid": 35, "status": "planned", "run_id": "manual__2026-11-27T12:00:00+00:00", "failing": False}
    with dialog(browser, examples, "&page=batch&txid=30", "Count again…") as (watched, box):
        examples.instead["/turn"] = (200, {"one": payload("topology"), "batches": {"batches": [planned], "next": None}})
        box.get_by_label("why").fill("x")
        box.get_by_role("button", name="Count again").click()
        until(lambda: "is running" in said(box) and "txid 35" in said(box) and "planned" in said(box))
        assert examples.count("runs/manual") == 0
        examples.instead["dagRuns/manual"] = (200, run | {"state": "success", "note": CHANGED})
        until(lambda: f"txid {batch['txid']}" in said(box) and "is done" in said(box))
        assert examples.count("runs/manual") == 1
        assert CHANGED in said(box)
        box.get_by_role("link", name=f"txid {batch['txid']}").click()
        box.wait_for(state="detached")
        until(lambda: f"txid={batch['txid']}" in watched.page.url)
        assert watched.wrong() == []


@pytest.mark.parametrize(
    ("status", "detail", "words"),
    [
        (
            400,
            "Invalid input for param why: None is <b>not</b> of type 'string'",
            "None is <b>not</b> of type 'string'",
        ),
        (403, "Forbidden", "Forbidden. Airflow decides who may trigger a run."),
        (401, "Not authenticated", "Not authenticated."),
        (504, None, "Airflow answered 504. A run may have begun all the same: look at the DAG's runs"),
    ],
)
def test_what_airflow_refuses_is_said_word_for_word(
    browser: Browser, examples: Examples, status: int, detail: str | None, words: str
) -> None:
    examples.instead["airflow:POST"] = (status, {"detail": detail})
    with dialog(browser, examples, "", "Verify…") as (watched, box):
        box.get_by_role("button", name="Verify").click()
        until(lambda: words in said(box))
        assert box.get_by_role("button", name="Verify").is_enabled()
        assert watched.page.url.endswith("dag_id=flights")


def test_a_paused_dag_is_told_with_its_switch(browser: Browser, examples: Examples) -> None:
    run = {"dag_run_id": "manual__2026-11-27T12:00:00+00:00", "state": "queued", "note": None}
    examples.instead["dagRuns/manual"] = (200, run)
    with dialog(browser, examples, "", "Verify…") as (_, box):
        box.get_by_role("button", name="Verify").click()
        until(lambda: "The DAG is paused: the run stays queued until somebody turns on the switch" in said(box))
        examples.instead["dagRuns/manual"] = (200, run | {"state": "running"})
        until(lambda: "running" in said(box))
        assert "is paused" not in said(box)


def test_who_may_not_trigger_sees_why(browser: Browser, examples: Examples) -> None:
    one = payload("topology_viewer")
    examples.instead["/turn"] = (200, {"one": one, "batches": payload("batches")})
    with opened(browser, examples.url("?dag_id=flights")) as watched:
        button = watched.page.get_by_role("button", name="Count again…")
        assert button.is_disabled()
        assert button.get_attribute("title") == "You may not trigger this DAG."
        assert "Verify… You may not trigger this DAG." in watched.text()
        assert "the DAG is paused" in watched.text()


def test_the_focus_stays_where_an_act_began_and_one_act_goes_on_at_a_time(browser: Browser, examples: Examples) -> None:
    examples.instead["dagRuns/manual"] = (200, {"dag_run_id": "manual__x", "state": "running", "note": None})
    with dialog(browser, examples, "", "Verify…") as (watched, box):
        watched.tab_to("Verify")
        for _ in range(3):
            watched.page.keyboard.press("Enter")
        until(lambda: "running" in said(box))
        assert (len(examples.posted), watched.focused()) == (1, "Verify")
        assert box.get_by_role("button", name="Verify").get_attribute("aria-disabled") == "true"
        examples.instead["dagRuns/manual"] = (
            200,
            {"dag_run_id": "manual__x", "state": "failed", "note": "TX301: a line"},
        )
        until(lambda: "failed" in said(box))
        assert watched.focused() == "Verify"
        watched.page.keyboard.press("Enter")
        until(lambda: len(examples.posted) == 2)
        assert watched.nameless() == []


def test_a_run_is_followed_over_a_restart_of_airflow(browser: Browser, examples: Examples) -> None:
    run = {"dag_run_id": "manual__x", "state": "running", "note": None}
    examples.instead["dagRuns/manual"] = (200, run)
    with dialog(browser, examples, "", "Verify…") as (watched, box):
        box.get_by_role("button", name="Verify").click()
        until(lambda: "running" in said(box))
        watched.page.route("**/dagRuns/**", lambda route: route.abort())
        until(lambda: "Airflow does not answer. Asking again…" in said(box))
        watched.page.unroute("**/dagRuns/**")
        examples.instead["dagRuns/manual"] = (200, run | {"state": "success", "note": CHANGED})
        until(lambda: CHANGED in said(box))
        assert "does not answer" not in said(box)


def test_an_act_without_an_answer_may_have_begun(browser: Browser, examples: Examples) -> None:
    with dialog(browser, examples, "", "Verify…") as (watched, box):
        watched.page.route("**/dagRuns", lambda route: route.abort())
        box.get_by_role("button", name="Verify").click()
        until(lambda: "Airflow does not answer. A run may have begun all the same" in said(box))


def test_an_error_is_explained_without_a_shell(browser: Browser, examples: Examples) -> None:
    with dialog(browser, examples, "", "Explain TX301") as (watched, box):
        until(lambda: "Is any number wrong?" in said(box))
        assert "Mend the source, or let the job filter or quarantine such records. Then clear the run, or run" in said(
            box
        )
        assert "**" not in said(box)
        assert "In Airflow, without a shell:" in said(box)
        assert "txbatch abort: Give up… on the page Batch" in said(box)
        assert "txbatch verify" not in said(box)
        assert examples.count("errors/TX301") == 1
        assert watched.nameless() == []
        watched.page.keyboard.press("Escape")
        box.wait_for(state="detached")
        assert watched.focused() == "Explain TX301"
        examples.instead["errors/"] = (404, {"detail": "no error has such a code"})
        watched.page.keyboard.press("Enter")
        until(lambda: "No error has such a code." in said(box))


def test_a_button_that_is_gone_gives_the_focus_to_the_tab(browser: Browser, examples: Examples) -> None:
    with dialog(browser, examples, "&page=completeness", "Count it…") as (watched, box):
        counted = payload("intervals")
        examples.instead["/intervals"] = (200, counted | {"gaps": []})
        one = payload("topology")
        one["topology"]["gaps"] = 0
        examples.instead["/turn"] = (200, {"one": one, "batches": payload("batches")})
        box.get_by_role("button", name="Count it").click()
        until(lambda: "No hole" in watched.text())
        watched.page.keyboard.press("Escape")
        box.wait_for(state="detached")
        until(lambda: watched.focused() == "Completeness")


def test_a_topology_without_a_dag_offers_no_act_and_says_why(browser: Browser, examples: Examples) -> None:
    one = payload("topology_viewer") | {"paused": None}
    examples.instead["flights/turn"] = (200, {"one": one, "batches": payload("batches")})
    examples.instead["orders/turn"] = (
        200,
        {"one": payload("topology_empty") | {"paused": None}, "batches": {"batches": [], "next": None}},
    )
    with opened(browser, examples.url("?dag_id=flights")) as watched:
        button = watched.page.get_by_role("button", name="Count again…")
        assert (button.is_disabled(), button.get_attribute("title")) == (True, "Airflow has no DAG of this topology.")
        assert watched.page.get_by_role("link", name="DAG", exact=True).count() == 0
        assert watched.page.title() == "Transactions · flights · txbatch"
        watched.go(examples.url("?dag_id=orders"))
        assert "No batch yet, and Airflow has no DAG of this topology." in watched.text()
        watched.go(examples.url())
        assert watched.page.title() == "txbatch"
