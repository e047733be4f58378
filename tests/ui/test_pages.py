"""The pages in a browser, on the example payloads: by keys alone, over polls, hidden, refused, and in Airflow's frame."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from support import until
from ui.browser import WIDE, Watched, opened
from ui.examples import Examples, payload

FLIGHTS = "?dag_id=flights"


@pytest.fixture
def page(browser: Browser, examples: Examples) -> Iterator[Watched]:
    """The page Transactions of flights."""
    with opened(browser, examples.url(FLIGHTS)) as watched:
        yield watched


def go(watched: Watched, address: str) -> None:
    watched.page.goto(address)
    watched.page.wait_for_selector("#page nav, #page table, #page .empty, #page .trouble")
    watched.page.wait_for_load_state("networkidle")


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
        assert "7 wait" in watched.text()
        assert watched.focused().startswith("txid 12, 2013-01-12")
        assert watched.page.evaluate("window.scrollY") == 300

        go(watched, examples.url(f"{FLIGHTS}&page=why"))
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
