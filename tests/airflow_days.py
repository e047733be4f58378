"""The topology of tests/airflow/jobs/days.py, a file for each day of New York, as stories in a browser see and count it."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
from airflow_support import Stack
from playwright.sync_api import Browser
from support import until
from ui.browser import Watched, logged_in, said, window

from txbatch import settings
from txbatch.core.batch.transaction import Interval
from txbatch.launch.job_file import load_job
from txbatch.wiring import open_runner

ZONE = "America/New_York"
NEW_YORK = ZoneInfo(ZONE)
# What Airflow's run of a few tasks takes.
RUN: dict[str, float] = {"seconds": 240.0, "every": 0.3}
NO_HOLE = "No hole: every interval between the first and the last is counted."


def day(number: int) -> Interval:
    """A day of January 2013 in New York."""
    return Interval(datetime(2013, 1, number, tzinfo=NEW_YORK), datetime(2013, 1, number + 1, tzinfo=NEW_YORK))


@dataclass(frozen=True)
class Days:
    """The topology `days`, its files, and its pages."""

    stack: Stack
    files: Path

    def file(self, number: int) -> Path:
        """Return the path of a day's file."""
        return self.files / f"2013-01-{number:02}.csv"

    def put(self, number: int, *lines: str) -> None:
        """Write the file of a day."""
        self.files.mkdir(exist_ok=True)
        self.file(number).write_text("\n".join(lines))

    def put_usual(self, number: int) -> None:
        """Write the file of a day as most are."""
        self.put(number, "B6,JFK,8", f"UA,EWR,{number}")

    def count(self, project: Path, *numbers: int) -> None:
        """Count days by the job of a project, without Airflow and without Spark."""
        with open_runner(load_job("jobs/days.py", project), settings.resolve(), zone=ZONE) as runner:
            assert len(list(runner.run_each([day(number) for number in numbers]))) == len(numbers)

    def by_hand(self) -> list[tuple[str, str, int]]:
        """Return what the files amount to, by carrier and origin."""
        found = Counter[tuple[str, str]]()
        for file in self.files.glob("2013-01-*.csv"):
            for line in file.read_text().splitlines():
                carrier, origin, flights = line.split(",")
                found[carrier, origin] += int(flights)
        return sorted((*key, flights) for key, flights in found.items())

    def counted(self) -> list[tuple[Any, ...]]:
        """Return what the report shows, by carrier and origin."""
        return self.stack.sql("SELECT carrier, origin, flights FROM report.days ORDER BY 1, 2")

    def page(self, query: str = "") -> str:
        """Return the address of a page of the topology."""
        return f"{self.stack.airflow.url}/txbatch/page?dag_id=days{query}"

    def token(self, user: str) -> str:
        """Return what Airflow gives a user who logs in."""
        airflow = self.stack.airflow
        asked = {"username": user, "password": json.loads(airflow.password_file.read_text())[user]}
        return str(httpx.post(f"{airflow.url}/auth/token", json=asked, trust_env=False).json()["access_token"])


def seen_by(browser: Browser, days: Days, user: str, **settings: Any) -> AbstractContextManager[Watched]:
    """Context manager. Give an empty page to a user who is logged in."""
    return window(browser, **logged_in(days.token(user)), **settings)


def step(watched: Watched, picture: str, *told: str, focus: str | None = None) -> None:
    """The page says all of this, nothing has gone wrong in the browser, and the focus is where it was."""
    until(lambda: all(each in watched.text() for each in told), f"{told} is not told", **RUN)
    assert watched.wrong() == []
    assert watched.sideways() <= 0
    assert focus is None or watched.focused() == focus
    watched.keep(picture)


def answered(watched: Watched, picture: str, *told: str, focus: str) -> None:
    """The dialog says all of this, sooner or later, and the focus is there; Escape closes the dialog."""
    box = watched.page.get_by_role("dialog")
    until(lambda: all(each in said(box) for each in told), f"{told} is not told", **RUN)
    until(lambda: watched.focused() == focus, f"the focus is not at {focus}", **RUN)
    watched.keep(picture)
    watched.page.keyboard.press("Escape")
    box.wait_for(state="detached")
