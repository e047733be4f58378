"""Texts of anybody, of 100,000 characters, with markup, quotes and turned text: they are text, and make no page wider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog
from ui.browser import PHONE, opened
from ui.examples import Examples, payload

PIECE = "<img src=x onerror=alert(1)>\"'&amp;\u202e\u2028</script>{{x}}%00"
LONG = (PIECE * (100_000 // len(PIECE) + 1))[:100_000]
# Texts that a source, a job or a person gives; of a list as many are long as a page has to show at once.
GIVEN = ("error", "reason", "requested_by", "run", "run_id", "waits_for_run", "source", "stream", "partition")
LISTS = ("key", "values", "value", "before", "after", "row", "reads")
MANY = 3
# Each page, and which answers are hostile: by a part of the request's path, an example.
PAGES: Mapping[str, Mapping[str, str]] = {
    "?dag_id=flights": {},
    "?dag_id=flights&page=batch&txid=33": {"batches/33": "batch_failing"},
    "?dag_id=flights&page=batch&txid=2": {"batches/2/changes": "batch_changes", "batches/2": "batch_replaced"},
    "?dag_id=flights&page=why&state=flights&key=B6&key=JFK": {"/why": "why"},
    "?dag_id=flights&page=changes": {"states/flights/changes": "state_changes"},
    "?dag_id=clicks&page=completeness": {"/partitions": "partitions"},
}


def hostile(told: Any, name: str = "") -> Any:
    """Return an answer whose given texts are long and hostile."""
    if isinstance(told, dict):
        return {each: hostile(of, each) for each, of in told.items()}
    if isinstance(told, list):
        return [hostile(of, name) if at < MANY else of for at, of in enumerate(told)]
    return LONG if isinstance(told, str) and name in (*GIVEN, *LISTS) else told


@pytest.mark.parametrize("query", PAGES)
def test_a_long_hostile_text_is_text_and_makes_no_page_wider(browser: Browser, examples: Examples, query: str) -> None:
    dialogs: list[Dialog] = []
    turn = {"one": payload("topology_partitions" if "clicks" in query else "topology"), "batches": payload("batches")}
    examples.instead["/turn"] = (200, hostile(turn))
    for part, example in PAGES[query].items():
        examples.instead[part] = (200, hostile(payload(example)))
    with opened(browser, examples.url(query), viewport=PHONE) as watched:
        watched.page.on("dialog", lambda dialog: dialogs.append(dialog))
        assert "<img src=x onerror=alert(1)>" in watched.text()
        assert "\u202e" not in watched.text()
        assert watched.page.locator("#page img, #page script").count() == 0
        assert watched.sideways() <= 0
        assert watched.wrong() == []
    assert dialogs == []
