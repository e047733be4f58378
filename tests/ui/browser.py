"""A browser for tests of the pages: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tools
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, sync_playwright

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
# What a page shows once it has drawn what it asked for first.
READY = "#page nav, #page table, #page .empty, #page .trouble"
# Pictures of the last run, for whoever wants to see what a browser showed.
PICTURES = Path(__file__).parents[2] / ".txbatch" / "pictures"
# More stops of the Tab key than any page has.
STOPS_MAX = 400
# What a reader hears of an element that has the focus.
SPOKEN = (
    """(each) => (each.getAttribute("aria-label") ?? each.labels?.[0]?.textContent ?? each.textContent ?? "").trim()"""
)

# From now on: which elements have had the focus, and which of them did not show the focus.
FOLLOWED = """() => {
  Object.assign(window, { stops: new Set(), presses: 0, unseen: [] });
  document.addEventListener("focusin", ({ target }) => {
    window.stops.add(target);
    const { outlineStyle, outlineWidth } = getComputedStyle(target);
    const unseen = outlineStyle === "none" || outlineWidth === "0px";
    if (unseen) window.unseen.push(`focus not seen: ${target.outerHTML.slice(0, 200)}`);
  });
}"""
# Each press of Tab leads to another element, until it leads out of the page or to the first one again. Within a field of a time
# Tab leads from part to part: such a press leads to no other element.
WALKED = """() => {
  const at = document.activeElement;
  if (at !== window.last || at.type !== "datetime-local") window.presses += 1;
  window.last = at;
  return window.presses > window.stops.size || at === document.body;
}"""
LEFT = """() => {
  const controls = 'a[href], button:enabled, input:enabled, select, summary, [tabindex="0"]';
  const left = [...document.querySelectorAll(controls)].filter((each) =>
    each.checkVisibility() && each.getAttribute("tabindex") !== "-1" && !window.stops.has(each));
  return [...window.unseen, ...left.map((each) => `not reached: ${each.outerHTML.slice(0, 200)}`)];
}"""
PICTURE_ROLES = ("image", "img", "graphics-document", "graphics-symbol")


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
        return self.page.evaluate(f"({SPOKEN})(document.activeElement)")

    def go(self, address: str) -> None:
        """Go to an address, and wait until the page has asked what it needs."""
        self.page.goto(address)
        self.page.wait_for_selector(READY)
        self.page.wait_for_load_state("networkidle")

    def tab_to(self, name: str) -> None:
        """Press Tab until an element of this name has the focus."""
        for _ in range(STOPS_MAX):
            self.page.keyboard.press("Tab")
            if self.focused() == name:
                return
        raise AssertionError(f"Tab does not lead to {name!r}")

    def press(self, name: str) -> None:
        """Go to an element by Tab, and press Enter."""
        self.tab_to(name)
        self.page.keyboard.press("Enter")

    def unreached(self) -> list[str]:
        """Walk through the page by Tab; return what Tab does not reach, and what does not show that it has the focus."""
        self.page.evaluate(FOLLOWED)
        for _ in range(STOPS_MAX):
            self.page.keyboard.press("Tab")
            if self.page.evaluate(WALKED):
                return list(self.page.evaluate(LEFT))
        return [f"Tab comes to no end in {STOPS_MAX} stops"]

    def nameless(self) -> list[str]:
        """Return the roles of all that can have the focus, and of pictures, that have no name for who only hears the page."""
        session = self.page.context.new_cdp_session(self.page)
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
        session.detach()
        return [
            _role(node) for node in nodes if _needs_a_name(node) and not node.get("name", {}).get("value", "").strip()
        ]

    def keep(self, name: str) -> None:
        """Keep a picture of what is seen."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")


def _role(node: dict[str, Any]) -> str:
    return str(node.get("role", {}).get("value"))


def _needs_a_name(node: dict[str, Any]) -> bool:
    """Return whether something that a browser tells to who only hears can have the focus, or is a picture."""
    if node["ignored"] or _role(node) in ("RootWebArea", "MenuListPopup"):
        return False
    told = {each["name"]: each["value"].get("value") for each in node.get("properties", ())}
    return bool(told.get("focusable")) or _role(node).lower() in PICTURE_ROLES


def logged_in(token: str) -> dict[str, Any]:
    """Return what a context holds after the login of Airflow on this machine."""
    cookie = {"name": "_token", "value": token, "domain": "127.0.0.1", "path": "/"}
    more = {"expires": -1, "httpOnly": True, "secure": False, "sameSite": "Lax"}
    return {"storage_state": {"cookies": [cookie | more], "origins": []}}


def said(box: Locator) -> str:
    """Return the text of an element, each run of white space as one blank."""
    return " ".join(box.inner_text().split())


@contextmanager
def window(browser: Browser, **context: Any) -> Iterator[Watched]:
    """Context manager. Give an empty page in a context of its own."""
    settings = {"viewport": WIDE, "color_scheme": "light", "timezone_id": "UTC", "locale": "en-GB", **context}
    made: BrowserContext = browser.new_context(**settings)
    made.add_init_script(REPORTS)
    watched = Watched(made.new_page())
    watched.listen()
    try:
        yield watched
    finally:
        made.close()


@contextmanager
def opened(browser: Browser, address: str, **context: Any) -> Iterator[Watched]:
    """Context manager. Open an address in a context of its own, and wait until the page has asked what it needs."""
    with window(browser, **context) as watched:
        watched.go(address)
        yield watched
