"""The pages in a browser, on the example payloads: what each says, wide and narrow, light and dark, and by keys alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, Route
from support import until
from ui.browser import PHONE, WIDE, Watched, opened, said
from ui.examples import Examples, payload

FLIGHTS = "?dag_id=flights"
WHY = f"{FLIGHTS}&page=why&state=flights&key=B6&key=JFK"
ZONE = "America/New_York"
HOSTILE = "<img src=x onerror=alert(1)>"
# The address of each page, and texts that it shows.
PAGES = {
    "topologies": ("", ["Topologies", "flights", "clicks", "100,000", "2013-01-12"]),
    "transactions": (
        FLIGHTS,
        [
            *(
                "days of America/New_York · complete up to 2013-01-12 · newest txid 34",
                "1 hole",
                "2 in flight",
                "1 failing",
            ),
            *(
                "counted again by 31",
                "counts in place of 2",
                "times of UTC",
                "waits 4 min for txid 33",
            ),
            *("which shows no sign of life", "2013-01-31", "859", HOSTILE, "\\u202egpj"),
        ],
    ),
    "completeness": (
        f"{FLIGHTS}&page=completeness",
        [
            "2013-01",
            "30 days · 1 hole between them",
            "Not counted: 2013-01-13 (America/New_York): no batch has it",
            "Count it…",
            "2013-01-02: txid 31 counts it; asked for by ana: “the file of the 2nd was cut off”",
            "✓ committed ↻ counted again not counted more than one attempt",
        ],
    ),
    "partitions": (
        "?dag_id=clicks&page=completeness",
        [
            "1 partition cannot be read",
            "✓ read not readable; a line leads to what filled it",
            "part-00002.txt",
            "9007199254740001",
            "txid 41",
            HOSTILE,
            "\\u202etxt.cod",
        ],
    ),
    "batch": (
        f"{FLIGHTS}&page=batch&txid=30",
        [
            *(
                "txid 30",
                "covers 2013-01-31",
                "859 records",
                "31 keys",
                "2 attempts",
                "Spark 3.1 s",
                "planned to commit 2 min",
            ),
            *(
                "Counted once",
                "2 attempts tried, 30:2 was let through",
                "859 records read = 859 summed by stream and partition",
            ),
            *(
                "verified or not: see the runs of flights.verify",
                "329 → 376",
                "2013-01-31.csv",
                "30:1 failed",
                "9007199254740993",
                HOSTILE,
                "\\u202eKFJ",
            ),
        ],
    ),
    "replaced": (
        f"{FLIGHTS}&page=batch&txid=2",
        [
            "It does not count any more: txid 31 counts in its place; asked for by ana: “the file of the 2nd was cut off”."
        ],
    ),
    "failing": (f"{FLIGHTS}&page=batch&txid=33", ["Give up…", "33:2 failed", "line 17", "the whole error"]),
    "of partitions": (
        "?dag_id=clicks&page=batch&txid=99000",
        ["9,007,199,254,740,993 records", "9007199254740993", "unreadable: No such file or directory"],
    ),
    "why": (
        WHY,
        [
            *("as of now, txid 31", "376", "contributions and what is folded amount to the value", "until 31: txid 2"),
            *("“the file of the 2nd was cut off” (ana)", "2013-01-02.csv", "9007199254740993"),
        ],
    ),
    "why not": (
        f"{FLIGHTS}&page=why&state=flights&key=x&key=y",
        ["12345678901234567890123456789012345678", "do not amount to the value: somebody changed it outside"],
    ),
    "no past": (
        f"{FLIGHTS}&page=why&state=flights_abroad&key=B6&key=JFK",
        ["Kept in another database (warehouse): no past."],
    ),
    "merged": (f"{FLIGHTS}&page=why&state=flights_ranked&key=B6&key=JFK", ["txbatch as-of in the project's folder"]),
    "changes": (f"{FLIGHTS}&page=changes&from=12&to=30", ["3 keys differ between txid 12 and txid 30", "329 → 376"]),
    "run": (f"{FLIGHTS}&run_id=many", ["10 batches of run many", "2013-01-22"]),
    "nothing yet": ("?dag_id=orders", ["No batch yet: trigger the DAG."]),
    "no topology": ("?dag_id=nosuch", ["No topology of txbatch."]),
}
# The slider is dragged by nine txids, without a rest.
DRAGGED = """(slider) => {
  for (let step = 0; step < 9; step += 1) {
    slider.value = Number(slider.value) - 1;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  }
}"""
# The network's own line for an answer that is an error.
ANSWERED = "Failed to load resource: the server responded with a status of"


@pytest.fixture
def page(browser: Browser, examples: Examples) -> Iterator[Watched]:
    """The page Transactions of flights."""
    with opened(browser, examples.url(FLIGHTS)) as watched:
        yield watched


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="light"),
        pytest.param({"color_scheme": "dark"}, id="dark", marks=pytest.mark.whole),
        pytest.param({"viewport": PHONE}, id="phone", marks=pytest.mark.whole),
    ],
)
def test_each_page_says_its_words_and_nothing_else_happens(
    browser: Browser, examples: Examples, settings: dict[str, object]
) -> None:
    """Names, errors and reasons with markup are text; no page is wider than its window; Tab leads to all that can be done."""
    dialogs: list[Dialog] = []
    with opened(browser, examples.url(), **settings) as watched:
        watched.page.on("dialog", lambda dialog: dialogs.append(dialog))
        for name, (query, words) in PAGES.items():
            watched.go(examples.url(query))
            text = watched.text()
            missing = [each for each in words if each not in text]
            # The column of runs goes where it has no place.
            assert missing == (["\\u202egpj"] if name == "transactions" and "viewport" in settings else []), (
                name,
                text,
            )
            assert watched.sideways() <= 0, name
            assert watched.page.locator("#page img").count() == 0
            wrong = [each for each in watched.wrong() if not (name == "no topology" and each.startswith(ANSWERED))]
            assert wrong == [], name
            watched.errors.clear()
            if not settings:
                assert (watched.nameless(), watched.unreached()) == ([], []), name
    assert dialogs == []


@pytest.mark.parametrize(
    ("query", "group"),
    [
        (FLIGHTS, ".strip"),
        (f"{FLIGHTS}&page=completeness", ".calendar"),
        ("?dag_id=clicks&page=completeness", ".grid"),
    ],
    ids=["strip", "calendar", "grid"],
)
def test_every_cell_is_reached_by_keys_and_says_a_sentence(
    browser: Browser, examples: Examples, query: str, group: str
) -> None:
    with opened(browser, examples.url(query)) as watched:
        cells = watched.page.locator(f"{group} [data-cell]")
        labels = [str(each.get_attribute("aria-label")) for each in cells.all()]
        assert watched.page.locator(f'{group} [data-cell][tabindex="0"]').count() == 1
        watched.page.locator(f'{group} [data-cell][tabindex="0"]').focus()
        watched.page.keyboard.press("Control+Home" if group != ".strip" else "Home")
        while watched.focused() != labels[0]:
            watched.page.keyboard.press("ArrowUp")
        found = [watched.focused()]
        for _ in labels[1:]:
            watched.page.keyboard.press("ArrowRight")
            found.append(watched.focused())
        assert found == labels
        assert all(", " in each for each in labels)
        watched.page.keyboard.press("ArrowLeft")
        assert watched.focused() == labels[-2]
        watched.page.keyboard.press("Enter")
        watched.page.wait_for_selector(".title h2")


def test_a_window_without_a_hole_tells_of_a_hole_elsewhere(browser: Browser, examples: Examples) -> None:
    """Only a page with all intervals tells that all are counted; a link leads to the first hole."""
    examples.instead["/intervals"] = (200, payload("intervals") | {"gaps": []})
    with opened(browser, examples.url(f"{FLIGHTS}&page=completeness")) as watched:
        assert "✓ No hole between the intervals that are shown. 1 hole elsewhere, the first behind 2013-01-12." in (
            watched.text()
        )
        del examples.instead["/intervals"]
        watched.press("behind 2013-01-12")
        until(lambda: "Not counted: 2013-01-13" in watched.text())
        asked = [each for each in examples.asked if "/intervals" in each][-1]
        assert "from=2012-07-14T05%3A00%3A00Z&to=2013-07-15T05%3A00%3A00Z" in asked
        assert watched.wrong() == []


@pytest.mark.parametrize(
    ("start", "at", "told"),
    [
        ("13", None, "(America/New_York): txid 13 was given up: “its file is <b>damaged</b>” Count it…"),
        ("12", None, "no batch has it; 2013-01-13: txid 13 was given up: “its file is <b>damaged</b>”"),
        (
            "13",
            "2026-11-27T10:32:40Z",
            "txid 13 was given up (2026-11-27 10:32:40): “its file is <b>damaged</b>” Count",
        ),
    ],
)
def test_a_hole_of_a_batch_that_was_given_up_says_so_with_its_reason(
    browser: Browser, examples: Examples, start: str, at: str | None, told: str
) -> None:
    intervals = payload("intervals")
    (gap,) = intervals["gaps"]
    of = {"start": gap["start"], "end": gap["end"], "at": at, "reason": "its file is <b>damaged</b>"}
    gap |= {"start": f"2013-01-{start}T05:00:00Z", "given_up": {"txid": 13, **of}}
    examples.instead["/intervals"] = (200, intervals)
    with opened(browser, examples.url(f"{FLIGHTS}&page=completeness")) as watched:
        assert told in watched.text()
        watched.page.get_by_role("list", name="Not counted").get_by_role("link", name="txid 13").click()
        watched.page.wait_for_url("**txid=13")
        assert watched.wrong() == []


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ({"kind": "ordinary", "status": "committed"}, "“damaged”. txid 40 counts its interval now."),
        ({"kind": "restate", "status": "committed"}, "“damaged”. txid 40 counts its interval now."),
        ({"kind": "skip", "status": "committed"}, "“damaged”. txid 40 counts records of it as read."),
        ({"kind": "ordinary", "status": "planned"}, "“damaged”. txid 40 has its interval, and is planned."),
    ],
)
def test_a_batch_that_was_given_up_leads_to_the_one_that_has_its_interval(
    browser: Browser, examples: Examples, by: dict[str, Any], told: str
) -> None:
    batch = payload("batch_failing") | {"interval_by": {"txid": 40, **by}}
    batch["batch"] |= {"status": "aborted", "failing": False, "reason": "damaged"}
    examples.instead["/batches/33?"] = (200, batch)
    with opened(browser, examples.url(f"{FLIGHTS}&page=batch&txid=33")) as watched:
        assert told in watched.text()
        assert watched.page.get_by_role("button", name="Count it…").count() == 0
        watched.page.get_by_role("link", name="txid 40").click()
        watched.page.wait_for_url("**txid=40")
        assert watched.wrong() == []


def test_when_a_batch_was_given_up_is_told_with_why(browser: Browser, examples: Examples) -> None:
    """Who gave it up stands in the reason that Airflow's form stores."""
    batch = payload("batch_failing")
    batch["batch"] |= {"status": "aborted", "failing": False, "aborted_at": "2026-11-27T10:32:40Z"}
    batch["batch"]["reason"] = "damaged (ana, run manual__x)"
    examples.instead["/batches/33?"] = (200, batch)
    with opened(browser, examples.url(f"{FLIGHTS}&page=batch&txid=33")) as watched:
        told = "It was given up (2026-11-27 10:32:40) and counts nothing: “damaged (ana, run manual__x)”."
        assert told in watched.text()


def test_a_restate_names_the_interval_that_it_counts_again(browser: Browser, examples: Examples) -> None:
    """It leads to the batch in whose place it counts; where batches are not by time it names that batch."""
    with opened(browser, examples.url(FLIGHTS)) as watched:
        row = watched.page.get_by_role("row").filter(has_text="counts in place of 2")
        assert "31 2013-01-02 ↺ counts in place of 2" in said(row)
        row.get_by_role("link", name="2013-01-02").click()
        watched.page.wait_for_url("**txid=2")
    batches = payload("batches")
    for each in batches["batches"]:
        each |= {"start": None, "end": None}
    examples.instead["/turn"] = (200, {"one": payload("topology"), "batches": batches})
    with opened(browser, examples.url(FLIGHTS)) as watched:
        assert watched.page.get_by_role("link", name="as txid 2").is_visible()


def test_columns_without_a_value_are_left_out(browser: Browser, examples: Examples) -> None:
    heads = "each => [...each.querySelectorAll('th')].map((head) => head.textContent)"

    def columns(watched: Watched, query: str) -> Any:
        watched.go(examples.url(query))
        return watched.page.get_by_role("region", name="What it read").evaluate(heads)

    with opened(browser, examples.url()) as watched:
        assert columns(watched, f"{FLIGHTS}&page=batch&txid=30") == ["stream", "read"]
        of_partitions = columns(watched, "?dag_id=clicks&page=batch&txid=99000")
        assert of_partitions == ["stream", "read", "from", "to", "records", ""]


def test_the_whole_error_is_shown_where_it_is_longer(browser: Browser, examples: Examples) -> None:
    batch = payload("batch_failing")
    batch["attempts"][0]["error"] = "TX501 (try again): the driver was killed"
    examples.instead["/batches/33?"] = (200, batch)
    with opened(browser, examples.url(f"{FLIGHTS}&page=batch&txid=33")) as watched:
        items = [said(each) for each in watched.page.locator(".attempts > li").all()]
        assert ["the whole error" in each for each in items] == [False, True]


def test_whoever_wonders_if_a_batch_was_verified_is_led_to_the_runs_that_tell(
    browser: Browser, examples: Examples
) -> None:
    with opened(browser, examples.url(f"{FLIGHTS}&page=batch&txid=30")) as watched:
        watched.page.get_by_role("link", name="the runs of flights.verify").click()
        watched.page.wait_for_url("**/dags/flights.verify/runs")


def test_a_source_without_partitions_has_no_search_for_them(browser: Browser, examples: Examples) -> None:
    examples.instead["/partitions"] = (200, payload("partitions") | {"rows": [], "cells": [], "next": None})
    with opened(browser, examples.url("?dag_id=clicks&page=completeness")) as watched:
        assert "Its source has no partitions." in watched.text()
        assert watched.page.get_by_role("form", name="Find partitions").count() == 0
        watched.go(examples.url("?dag_id=clicks&page=completeness&search=x"))
        assert "No partition has such a name." in watched.text()
        assert watched.page.get_by_role("form", name="Find partitions").is_visible()


def test_two_txids_are_compared_from_the_lower_to_the_higher(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url(f"{FLIGHTS}&page=changes&from=30&to=12")) as watched:
        assert "3 keys differ between txid 12 and txid 30" in watched.text()
        fields = [watched.page.get_by_label(name).input_value() for name in ("from txid", "to txid")]
        assert fields == ["12", "30"]
        assert examples.count("from=12&to=30") == 1


def test_changes_that_are_not_all_shown_are_not_told_as_all(browser: Browser, examples: Examples) -> None:
    examples.instead["/changes"] = (200, payload("state_changes") | {"more": True})
    with opened(browser, examples.url(f"{FLIGHTS}&page=changes&from=12&to=30")) as watched:
        assert "3 keys differ between txid 12 and txid 30, and more." in watched.text()
        assert "3 are shown; there are more." in watched.text()


def test_when_a_batch_was_planned_is_told_once_with_its_first_attempt(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url(f"{FLIGHTS}&page=batch&txid=33")) as watched:
        lines = watched.page.get_by_role("list", name="When it happened").get_by_role("listitem")
        told = [said(each) for each in lines.all()]
        assert [each.split("emit")[0] for each in told] == ["planned 2026-11-27 10:33:00 ", ""]


CUT = "each => getComputedStyle(each).getPropertyValue('--cut')"


def test_what_is_cut_on_a_phone_fades_out_until_it_is_scrolled_to_its_end(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url(f"{FLIGHTS}&page=completeness"), viewport=PHONE) as watched:
        region = watched.page.locator(".calendar")
        assert region.evaluate("each => each.scrollWidth > each.clientWidth")
        until(lambda: region.evaluate(CUT) == "40px")
        region.evaluate("each => each.scrollTo(each.scrollWidth, 0)")
        until(lambda: region.evaluate(CUT) == "0px")
    with opened(browser, examples.url(f"{FLIGHTS}&page=completeness")) as watched:
        assert watched.page.locator(".calendar").evaluate(CUT) == "0px"


def test_on_a_phone_the_list_shows_first_what_goes_wrong(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url(), viewport=PHONE) as watched:
        region = watched.page.get_by_role("region", name="Topologies")
        for name in ("complete to", "holes", "failing", "waiting"):
            box = region.get_by_role("columnheader", name=name).bounding_box()
            assert box, name
            assert box["x"] + box["width"] <= PHONE["width"], name


def test_a_hole_that_was_counted_later_names_the_user_behind_its_run(browser: Browser, examples: Examples) -> None:
    """What is counted in its order is not listed, whoever triggered it."""
    told = payload("intervals")
    for each in told["intervals"]:
        each["triggered_by"] = "bo <b>"
    told["intervals"][4]["txid"] = 35
    examples.instead["/intervals"] = (200, told)
    with opened(browser, examples.url(f"{FLIGHTS}&page=completeness")) as watched:
        why = said(watched.page.get_by_role("list", name="Why"))
        assert "2013-01-05: txid 5 counts it; its run was triggered by bo <b>" in why
        assert why.count("counts it") == 2
        assert watched.wrong() == []


def test_a_batch_that_was_counted_again_twice_names_the_one_that_counts(browser: Browser, examples: Examples) -> None:
    replaced = payload("batch_replaced")
    (first,) = replaced["restates"]
    again = {"txid": 40, "replaced_txid": 31, "reason": "cut off twice", "requested_by": "bo"}
    replaced["restates"] = [first | {"replaced_by": 40}, first | again]
    examples.instead["/batches/2"] = (200, replaced)
    with opened(browser, examples.url(f"{FLIGHTS}&page=batch&txid=2")) as watched:
        told = "It does not count any more: txid 40 counts in its place; asked for by bo: “cut off twice”."
        assert told in watched.text()


def test_not_all_is_well_while_a_partition_is_left_out(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url("?dag_id=clicks")) as watched:
        assert "1 partition left out" in watched.text()
        assert "Nothing waits" not in watched.text()


@pytest.mark.parametrize(
    ("txid", "changes", "told", "to"),
    [
        (
            *(32, {"status": "aborted", "given_up_by": 35}),
            *("It was given up and counts nothing: “cut off”. txid 35 counts records of it as read.", 35),
        ),
        (35, {"kind": "skip", "gives_up": 32}, "count nothing: “cut off”. They are of txid 32.", 32),
    ],
)
def test_a_batch_that_was_given_up_and_what_counts_its_records_lead_to_each_other(
    browser: Browser, examples: Examples, txid: int, changes: dict[str, Any], told: str, to: int
) -> None:
    """Records of it: those of one partition alone may have been given up, and the next plan reads all others."""
    batch = payload("batch")
    own = {name: changes.pop(name) for name in ("status", "kind") if name in changes}
    batch["batch"].update(own, txid=txid, reason="cut off")
    examples.instead[f"/batches/{txid}?"] = (200, batch | {"triggered_by": "bo <b>"} | changes)
    with opened(browser, examples.url(f"{FLIGHTS}&page=batch&txid={txid}")) as watched:
        assert told in watched.text()
        assert "triggered by bo <b>" in watched.text()
        watched.page.get_by_role("link", name=f"txid {to}").click()
        watched.page.wait_for_url(f"**txid={to}")
        assert watched.wrong() == []


def test_a_txid_is_gone_to_by_its_number_and_the_window_moves_both_ways(page: Watched, examples: Examples) -> None:
    one = payload("topology")
    one["topology"]["newest_txid"] = 500
    examples.instead["/turn"] = (200, {"one": one, "batches": payload("batches")})
    page.go(examples.url(f"{FLIGHTS}&before=35"))
    page.page.get_by_role("link", name="Newer").click()
    until(lambda: examples.count("before=95") > 0)
    page.page.get_by_label("go to txid").fill("30")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".title h2")
    before = page.page.get_by_role("button", name="The batch before: 29")
    assert said(before) == "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK} 29"
    before.click()
    until(lambda: "txid=29" in page.page.url)
    assert page.wrong() == []


def test_changes_of_one_batch_name_who_asked_for_it(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url(f"{FLIGHTS}&page=changes&from=30&to=31")) as watched:
        told = "asked for by ana: “the file of the 2nd was cut off”; its run was triggered by ana"
        until(lambda: told in watched.text())
        assert "txid 31" in watched.text()
        assert watched.wrong() == []


def test_focus_typed_text_and_scroll_are_kept_over_two_polls(browser: Browser, examples: Examples) -> None:
    """What comes anew is drawn over the old; a turn is one request."""
    with opened(browser, examples.url(FLIGHTS)) as watched:
        cell = watched.page.locator('.strip [data-cell="12"]')
        cell.focus()
        watched.page.evaluate("window.scrollTo(0, 300)")
        one = payload("topology")
        one["topology"]["waiting"] = 7
        batches = payload("batches")
        batches["batches"] = [batches["batches"][0] | {"txid": 35}, *batches["batches"][:-1]]
        examples.instead["/turn"] = (200, {"one": one, "batches": batches})
        before = examples.count("/turn")
        until(lambda: examples.count("/turn") >= before + 2)
        watched.page.wait_for_selector('.strip [data-cell="35"]')
        assert "7 waiting" in watched.text()
        assert watched.focused().startswith("txid 12, 2013-01-12")
        assert watched.page.evaluate("window.scrollY") == 300

        watched.go(examples.url(f"{FLIGHTS}&page=why"))
        watched.page.locator("[name=key]").first.fill("B")
        before = examples.count("/turn")
        until(lambda: examples.count("/turn") >= before + 2)
        assert watched.page.locator("[name=key]").first.input_value() == "B"
        assert watched.wrong() == []


def test_a_turn_is_one_request_and_none_while_hidden(page: Watched, examples: Examples) -> None:
    before = len(examples.asked)
    until(lambda: len(examples.asked) >= before + 2)
    assert {each.split("?")[0] for each in examples.asked[before:]} == {"topologies/flights/turn"}
    hide(page.page, "hidden")
    asked = len(examples.asked)
    page.page.wait_for_timeout(7000)
    assert len(examples.asked) <= asked + 1
    hide(page.page, "visible")
    until(lambda: len(examples.asked) > asked + 1)


def hide(page: Page, state: str) -> None:
    page.evaluate(
        f"Object.defineProperty(document, 'visibilityState', {{ value: '{state}', configurable: true }});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        ("error_503", 503, "The ledger cannot be read. Runs that need it wait or are retried; Airflow itself goes on."),
        ("error_503_old", 503, "This ledger is older than txbatch 0.1: txbatch migrate."),
        ("error_503_slow", 503, "The ledger took longer than 5 s."),
        ("error_403", 403, "You may not read the runs of this DAG."),
    ],
)
def test_what_a_turn_was_refused_with_is_said_and_the_old_content_stays(
    page: Watched, examples: Examples, error: str, status: int, words: str
) -> None:
    examples.instead["/turn"] = (status, payload(error))
    page.page.wait_for_selector(".trouble")
    assert words in page.text()
    assert "2013-01-31" in page.text()
    del examples.instead["/turn"]
    page.page.get_by_role("button", name="Try again").click()
    page.page.wait_for_selector(".trouble", state="detached")


def test_pages_that_are_busy_are_no_alarm(page: Watched, examples: Examples) -> None:
    examples.instead["/turn"] = (503, {"detail": "the pages are busy, and ask again shortly"})
    notice = page.page.get_by_text("The pages are busy")
    notice.wait_for()
    assert page.page.locator("[role=alert]").count() == 0
    assert "2013-01-31" in page.text()
    del examples.instead["/turn"]
    notice.wait_for(state="detached")


def test_one_part_that_is_slow_leaves_the_rest(browser: Browser, examples: Examples) -> None:
    examples.instead["/changes"] = (503, payload("error_503_slow"))
    with opened(browser, examples.url(f"{FLIGHTS}&page=batch&txid=30")) as watched:
        assert "The ledger took longer than 5 s." in watched.text()
        assert "Counted once" in watched.text()
        del examples.instead["/changes"]
        until(lambda: "329 → 376" in watched.text())


def test_a_session_that_is_over_leads_to_the_login_and_back(browser: Browser, examples: Examples) -> None:
    examples.instead["orders/turn"] = (401, payload("error_401"))
    with opened(browser, examples.url("?dag_id=nosuch")) as watched:
        watched.page.goto(examples.url("?dag_id=orders"), wait_until="commit")
        watched.page.wait_for_url("**/api/v2/auth/login**")
        assert "next=http" in watched.page.url
        assert "dag_id%3Dorders" in watched.page.url
        watched.go(examples.url("?dag_id=orders"))
        assert "Log in" in watched.text()
        assert "/auth/login" not in watched.page.url


def test_the_slider_asks_what_the_number_was_and_keys_move_it(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url(WHY)) as watched:
        slider = watched.page.get_by_role("slider")
        slider.focus()
        watched.page.keyboard.press("ArrowLeft")
        until(lambda: "8.483050847457626" in watched.text())
        assert "as of txid 30" in watched.text()
        assert "committed 2026-11-20 10:02:20 · covers 2013-01-12" in watched.text()
        spoken = "txid 30, committed 2026-11-20 10:02:20 · covers 2013-01-12"
        assert slider.get_attribute("aria-valuetext") == spoken
        (asked,) = (each for each in examples.asked if "as-of" in each)
        assert "txid=30" in asked
        slider.evaluate(DRAGGED)
        watched.page.wait_for_selector("text=as of txid 21")
        until(lambda: examples.count("as-of") > 1)
        watched.page.wait_for_load_state("networkidle")
        assert (examples.count("as-of"), examples.count("txid=21")) == (2, 1)
        examples.instead["as-of"] = (410, payload("error_410"))
        watched.page.keyboard.press("Home")
        until(lambda: "retention has folded what it was before txid 4" in watched.text())
        assert watched.page.evaluate("document.activeElement.id") == "as-of"
        examples.instead["as-of"] = (200, payload("as_of_absent"))
        watched.page.keyboard.press("ArrowRight")
        until(lambda: "flights \N{EN DASH}" in watched.text())
        examples.instead["as-of"] = (200, payload("as_of_absent") | {"committed_at": None, "start": None})
        watched.page.keyboard.press("ArrowRight")
        until(lambda: "not committed" in watched.text())


def test_the_slider_goes_to_what_was_committed_last_before_a_time(browser: Browser, examples: Examples) -> None:
    """The time is that of where the reader is. The keys of the slider go on from there."""
    with opened(browser, examples.url(WHY), timezone_id=ZONE) as watched:
        watched.page.get_by_label("as it was at").fill("2026-11-20T05:30")
        watched.press("Go")
        until(lambda: "as of txid 21" in watched.text())
        assert examples.count("committed?before=2026-11-20T10%3A30%3A00.000Z") == 1
        assert f"times of {ZONE}" in watched.text()
        watched.tab_to("as of txid 21")
        watched.page.keyboard.press("ArrowLeft")
        until(lambda: "as of txid 20" in watched.text())
        assert "at=" not in watched.page.url
        assert watched.wrong() == []


def test_a_time_before_all_that_is_kept_is_told(browser: Browser, examples: Examples) -> None:
    examples.instead["/committed"] = (200, {"txid": None})
    with opened(browser, examples.url(f"{WHY}&at=1999-01-01T00:00:00.000Z")) as watched:
        assert "Nothing that is kept was committed before then." in watched.text()
        assert "as of now, txid 31" in watched.text()
        examples.instead["/committed"] = (422, {"detail": "before is a moment such as 2013-01-01T05:00:00Z"})
        watched.go(examples.url(f"{WHY}&at=x"))
        assert "Before is a moment such as 2013-01-01T05:00:00Z." in watched.text()


def test_as_of_a_txid_the_table_has_what_counted_then_and_proves_nothing_of_now(
    browser: Browser, examples: Examples
) -> None:
    with opened(browser, examples.url(f"{WHY}&as_of=20")) as watched:
        until(lambda: "as of txid 20" in watched.text())
        assert "2013-01-02.csv" in watched.text()
        assert [told for told in ("amount to the value", "until 31", "2013-01-31.csv") if told in watched.text()] == []


def test_a_number_of_another_txid_is_pale_until_the_answer_is_there(browser: Browser, examples: Examples) -> None:
    with opened(browser, examples.url(WHY)) as watched:
        held: list[Route] = []
        watched.page.get_by_role("slider").focus()
        watched.page.keyboard.press("ArrowLeft")
        until(lambda: "8.483050847457626" in watched.text())
        assert watched.page.locator(".stale").count() == 0
        watched.page.route("**/as-of?**", lambda route: held.append(route))
        watched.page.keyboard.press("ArrowLeft")
        watched.page.wait_for_selector(".numbers.stale")
        assert "as of txid 29" in watched.text()
        assert "asking… " in watched.text()
        assert "committed 2026-11-20" not in watched.text()
        assert watched.page.get_by_role("slider").get_attribute("aria-valuetext") == "txid 29, asking…"
        assert watched.page.locator(".numbers").get_attribute("aria-busy") == "true"
        (route,) = held
        route.continue_()
        watched.page.wait_for_selector(".numbers:not(.stale)")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (f"{FLIGHTS}&page=why&state=nosuch&key=a", "This topology has no state nosuch, or has it no more."),
        (f"{FLIGHTS}&page=changes&state=no+<b>", "This topology has no state no <b>, or has it no more."),
    ],
)
def test_a_state_that_is_no_more_is_not_exchanged_for_another(
    browser: Browser, examples: Examples, query: str, words: str
) -> None:
    with opened(browser, examples.url(query)) as watched:
        assert words in watched.text()
        assert [each for each in examples.asked if "/states/" in each] == []
        assert watched.page.locator("select[name=state]").is_visible()


def test_a_wrong_txid_in_the_address_is_told_as_what_it_is(browser: Browser, examples: Examples) -> None:
    examples.instead["/turn"] = (422, {"detail": "before is a number from 1 to 9223372036854775807"})
    with opened(browser, examples.url(f"{FLIGHTS}&before=x")) as watched:
        assert "Before is a number from 1 to 9223372036854775807." in watched.text()
    with opened(browser, examples.url("?dag_id=%7E")) as watched:
        assert "No topology of txbatch." in watched.text()


def test_focus_that_is_lost_with_its_element_goes_to_the_tab(page: Watched, examples: Examples) -> None:
    page.page.locator('.strip [data-cell="30"]').focus()
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".title h2")
    assert page.focused() == "Batch"


def test_the_bar_of_all_txids_moves_the_window_by_pointer_and_keys(page: Watched, examples: Examples) -> None:
    examples.instead["/overview"] = (200, payload("overview_large"))
    page.page.reload()
    bar = page.page.get_by_role("slider")
    bar.wait_for()
    page.page.wait_for_load_state("networkidle")
    box = bar.bounding_box()
    assert box
    page.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
    until(lambda: examples.count("before=") > 0)
    last = payload("overview_large")["last"]
    asked = next(each for each in examples.asked if "before=" in each).split("before=")[1]
    assert abs(int(asked.split("&")[0]) - last / 2) < last / 100
    bar.focus()
    page.page.keyboard.press("End")
    until(lambda: "before=" not in page.page.url)


def test_links_out_of_the_sandbox_are_followed_by_airflows_page_and_its_theme_is_taken(
    browser: Browser, examples: Examples
) -> None:
    context = browser.new_context(viewport=WIDE)
    page = context.new_page()
    page.goto(f"{examples.base}/around")
    frame = page.frame(name="tab")
    assert frame
    frame.wait_for_selector(".strip")
    assert frame.evaluate("document.documentElement.dataset.theme") == "dark"
    page.evaluate("document.documentElement.className = 'light'")
    until(lambda: frame.evaluate("document.documentElement.dataset.theme") == "light")
    frame.click(".strip [data-cell='30']")
    frame.wait_for_selector("text=Counted once")
    frame.click("a.run")
    page.wait_for_url("**/dags/flights/runs/**")
    context.close()
