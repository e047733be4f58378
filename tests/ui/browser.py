"""A browser for tests of the pages: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import tools
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE = {"width": 1400, "height": 900}
PHONE = {"width": 390, "height": 844}
# A policy of the page that something broke, in the words of the browser.
REPORTS = """
window.reports = [];
document.addEventListener("securitypolicyviolation", (each) => {
  window.reports.push(`${each.violatedDirective} ${each.blockedURI}`);
});
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Context manager. Give a browser; without one the test is left out, and the run says so."""
    found = tools.found("chromium")
    if found is None:
        pytest.skip(tools.told(["chromium"]))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page of the browser, with what went wrong in it."""

    page: Page
    errors: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Keep each error of the console, and each exception that nobody caught."""
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def wrong(self) -> list[str]:
        """Return all errors so far, and what broke the policy of the page."""
        return [*self.errors, *self.page.evaluate("window.reports")]

    def text(self) -> str:
        """Return the text of the page, each run of white space as one blank."""
        return " ".join(self.page.inner_text("#page").split())

    def sideways(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        return self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")

    def focused(self) -> str:
        """Return the label or the text of the element that has the focus."""
        return self.page.evaluate(
            "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent ?? '').trim()"
        )


@contextmanager
def opened(browser: Browser, address: str, **context: Any) -> Iterator[Watched]:
    """Context manager. Open an address in a context of its own, and wait until the page has asked what it needs."""
    settings = {"viewport": WIDE, "color_scheme": "light", "timezone_id": "UTC", "locale": "en-GB", **context}
    made: BrowserContext = browser.new_context(**settings)
    made.add_init_script(REPORTS)
    watched = Watched(made.new_page())
    watched.listen()
    try:
        watched.page.goto(address)
        watched.page.wait_for_selector("#page nav, #page table, #page .empty, #page .trouble")
        watched.page.wait_for_load_state("networkidle")
        yield watched
    finally:
        made.close()
