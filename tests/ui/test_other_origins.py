"""A page of another port of the same host: the browser sends the session's cookie along, and the page reads and does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Response
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from support import until
from ui.browser import Watched, logged_in, window
from ui.examples import served
from ui.seeded import TOPOLOGIES

# What another page learns of an answer.
ASKED = """async ([url, options]) => {
  try {
    const answer = await fetch(url, { credentials: "include", ...options });
    return [answer.type, answer.status, await answer.text()];
  } catch (error) {
    return error.name;
  }
}"""
# A browser asks the server first whether another origin may do these.
ASKED_FIRST = ({"headers": {"x-one": "1"}}, {"method": "PUT"}, {"method": "DELETE"}, {"method": "PATCH"})


@dataclass
class Other:
    """A page of another origin, in the browser of an administrator, and what the pages' server answered."""

    watched: Watched
    api: str
    answers: list[tuple[str, int]] = field(default_factory=list)

    def keep(self, response: Response) -> None:
        """Keep the method and the status of an answer of the pages' server."""
        if response.url.startswith(self.api):
            self.answers.append((response.request.method, response.status))

    def ask(self, path: str, **options: Any) -> Any:
        """Ask the pages' server; return what this page learns."""
        return self.watched.page.evaluate(ASKED, [self.api + path, options])


@pytest.fixture
def address(pages_on: Callable[[str], AbstractContextManager[str]], ledgers: Callable[[str], str]) -> Iterator[str]:
    """The page."""
    with pages_on(ledgers("seeded")) as page:
        yield page


@pytest.fixture
def other(browser: Browser, airflow_login: Mapping[str, str], address: str) -> Iterator[Other]:
    """A page that has nothing but a frame for the pages."""

    async def around(_: Request) -> HTMLResponse:
        return HTMLResponse(f'<!doctype html><iframe src="{address}?dag_id=flights"></iframe>')

    with (
        served(Starlette(routes=[Route("/", around)])) as elsewhere,
        window(browser, **logged_in(airflow_login["admin"])) as watched,
    ):
        found = Other(watched, address.removesuffix("page") + "api/")
        watched.page.on("response", found.keep)
        watched.page.goto(elsewhere)
        yield found


def test_no_page_of_another_origin_frames_the_pages(other: Other) -> None:
    """Not even of the same host: nobody is led to press a button that is not seen."""
    until(lambda: any("frame-ancestors" in each for each in other.watched.wrong()), "the frame is not refused")
    assert [frame.url for frame in other.watched.page.frames[1:]] == ["chrome-error://chromewebdata/"]


def test_another_origin_reads_nothing_although_its_requests_are_answered(other: Other) -> None:
    assert other.ask("topologies") == "TypeError"
    assert other.ask("topologies", mode="no-cors") == ["opaque", 0, ""]
    assert ("GET", 200) in other.answers, "the cookie of the session did not go along"


def test_another_origin_posts_nothing(other: Other, site: Any) -> None:
    """Nothing of the pages takes a post; what a browser asks first about is not asked any more."""
    for path in ("topologies", "topologies/flights", "topologies/flights/batches/33"):
        assert other.ask(path, method="POST", mode="no-cors", body='{"abort": 33}') == ["opaque", 0, ""]
        for options in ASKED_FIRST:
            assert other.ask(path, **options) == "TypeError"
    assert {each for each in other.answers if each[0] != "OPTIONS"} == {("POST", 405)}
    assert [each["topology"] for each in site.told("/api/topologies")["topologies"]] == list(TOPOLOGIES)
