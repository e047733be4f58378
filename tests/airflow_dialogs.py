"""Airflow's own dialogs in a browser, by mouse: the form of a run, the backfill, and the note of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import Locator, Page, Response
from support import until
from ui.browser import said

# Of a busy machine: what Airflow's pages ask for is slow to come.
TIMEOUT = 180_000.0
# The format of Airflow's field of a date, and the text of an empty one.
DATE, EMPTY = "YYYY/MM/DD", "Select date and time"
# The part of the form without a section.
PLAIN = "Run Parameters"


@dataclass(frozen=True)
class OwnDialogs:
    """The dialogs of one page of the browser, at an Airflow of this URL."""

    page: Page
    url: str

    def open(self, dag_id: str) -> Locator:
        """Open the form of a run on the page of a DAG, and return the form."""
        self.page.set_default_timeout(TIMEOUT)
        self.page.goto(f"{self.url}/dags/{dag_id}")
        self.page.get_by_test_id("trigger-dag-button").first.click()
        self._fields.get_by_role("button", name=PLAIN, exact=True).wait_for()
        return self.box

    @property
    def box(self) -> Locator:
        """The dialog that is open. A field of a date opens another one."""
        return self.page.locator("[role=dialog]").filter(has=self._fields)

    @property
    def _fields(self) -> Locator:
        return self.page.get_by_test_id("config-form")

    def sections(self) -> list[str]:
        """Return the sections of the form, in order."""
        return [said(each) for each in self._fields.locator("[data-part=item-trigger]").all()]

    def labels(self, section: str) -> list[str]:
        """Open a section, and return the labels of its fields."""
        self._open_section(section)
        inside = self._fields.locator("[data-part=item]").filter(has=self._section(section))
        return [said(each).removesuffix("*").strip() for each in inside.locator("label[data-part=label]").all()]

    def fill(self, section: str, **values: str) -> None:
        """Write into fields of a section."""
        self._open_section(section)
        for name, value in values.items():
            self.box.locator(f"#element_{name}").fill(value)

    def date(self, number: int, date: str) -> None:
        """Write a date into a field of a moment, by its number in the dialog; "" empties the field."""
        self.box.get_by_test_id("datetime-input").nth(number).click()
        field = self.page.get_by_placeholder(DATE)
        field.fill(date)
        self.box.locator("h1, h2, h3").first.click()
        field.wait_for(state="detached")
        assert (EMPTY in said(self.box.get_by_test_id("datetime-input").nth(number))) == (not date)

    def trigger(self) -> str:
        """Start the run, and return its id: Airflow leads to the page of the run."""
        with self.page.expect_response(_posted("/dagRuns")) as answer:
            self.box.get_by_test_id("trigger-dag-submit").click()
        run_id = str(answer.value.json()["dag_run_id"])
        self.box.wait_for(state="detached")
        return run_id

    def backfill(self, dag_id: str, first: str, last: str) -> None:
        """Fill in a backfill of these dates, all of whose runs are active at once."""
        self.open(dag_id)
        self.box.get_by_text("Backfill", exact=True).click()
        self.date(0, first)
        self.date(1, last)

    def run_backfill(self, runs: int) -> None:
        """Start the backfill that is filled in, of so many runs."""
        self.box.get_by_text(f"{runs} runs will be triggered.").wait_for()
        self.box.locator("input[type=number]").first.fill(str(runs))
        with self.page.expect_response(_posted("/backfills")):
            self.box.get_by_role("button", name="Run Backfill").click()
        self.box.wait_for(state="detached")

    def go_to_run(self, dag_id: str, run_id: str) -> None:
        """Go to the page of a run."""
        self.page.set_default_timeout(TIMEOUT)
        self.page.goto(f"{self.url}/dags/{dag_id}/runs/{run_id}")

    def note(self) -> str:
        """Return the note by txbatch that the page of the run shows; "" for none."""
        found = self.page.get_by_text("txbatch: ")
        return said(found.first) if found.count() else ""

    def until_noted(self, words: str) -> str:
        """Wait until the note of the run has these words, and return the note.

        Airflow shows a note that comes while the page is open once the page is loaded again.
        """
        until(
            lambda: words in self.note() or words in self._reloaded(), f"{words!r} is not noted", seconds=240, every=2
        )
        return self.note()

    def _reloaded(self) -> str:
        self.page.reload(wait_until="networkidle")
        return self.note()

    def _open_section(self, section: str) -> None:
        button = self._section(section)
        if button.get_attribute("aria-expanded") != "true":
            button.click()

    def _section(self, section: str) -> Locator:
        return self.page.get_by_role("button", name=section, exact=True)


def _posted(path: str) -> Callable[[Response], bool]:
    return lambda answer: answer.request.method == "POST" and answer.url.endswith(path)
