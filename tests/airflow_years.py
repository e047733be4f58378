"""A topology with a record a year, as tests press the buttons of its DAG: by default that of tests/airflow/jobs/buttons.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_support import TASKS, Stack, States
from databases import session
from support import until

DAG = "buttons"
# Airflow ends the process of a task that was marked: a heartbeat a second, then 5 s each for SIGTERM and SIGKILL.
ENDED_SECONDS = 12
GREEN = ("success", dict.fromkeys(TASKS, "success"))
MARKED_FAILED = "txbatch: failed: {} ended by a mark, a kill, a timeout or an unknown error; clear the run to go on"
MARKED_SUCCESS = "txbatch: marked by hand: a mark commits nothing; clear the run to go on"


def start_of(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Years:
    """The DAG, what stands in the ledger of it, and where its tasks are held."""

    stack: Stack
    folder: Path
    dag: str = DAG

    def hold(self, task: str) -> None:
        """Let the task stay in the middle of its work; `commit` is held by a lock, see `held`."""
        self._at(task).unlink(missing_ok=True)
        (self.folder / f"{self.dag} hold {task}").touch()

    def release(self, task: str) -> None:
        (self.folder / f"{self.dag} hold {task}").unlink(missing_ok=True)

    def until_at(self, task: str) -> None:
        """Until the task is in the middle of its work."""
        seen = self._commit_blocked if task == "commit" else self._at(task).exists
        until(seen, f"{task} does not begin: {self.statuses()}")

    def begins_again(self, task: str) -> None:
        """Until another try is in the middle of the same work."""
        self._at(task).unlink(missing_ok=True)
        until(self._at(task).exists, f"{task} does not begin again")

    @contextmanager
    def held(self, task: str) -> Iterator[None]:
        """Context manager. The task is held in the middle of its work until the block ends."""
        if task == "commit":
            with session(self.stack.outage.of) as ask:  # nobody writes the state meanwhile
                ask("BEGIN")
                ask(f"LOCK TABLE state.{self.dag} IN SHARE MODE")
                yield
            return
        self.hold(task)
        try:
            yield
        finally:
            self.release(task)

    def trigger(self, run_id: str, year: int, **form: Any) -> str:
        """Start a run of this year, by a logical date in the summer after."""
        return self.stack.api.trigger(self.dag, run_id, conf=form, logical_date=datetime(year + 1, 6, 1, tzinfo=UTC))

    def end(self, run_id: str) -> tuple[str, States]:
        return self.stack.end(self.dag, run_id)

    def state(self, run_id: str, task: str) -> str | None:
        return self.stack.task_state(self.dag, run_id, task)

    def mark(self, run_id: str, task: str, state: str) -> None:
        self.stack.api.mark_task(self.dag, run_id, task, state)

    def mark_at_work(self, run_id: str, year: int, task: str, state: str) -> None:
        """Mark the task of a new run in the middle of its work, and wait until Airflow has ended its process."""
        with self.held(task):
            self.trigger(run_id, year)
            self.until_at(task)
            self.mark(run_id, task, state)
            time.sleep(ENDED_SECONDS)

    def clear(self, run_id: str, *tasks: str, downstream: bool = True) -> None:
        self.stack.api.clear_tasks(self.dag, run_id, tasks, downstream=downstream)

    def backfilled(self, *years: int) -> dict[int, dict[str, Any]]:
        """Wait until a backfill is complete; the run of each year.

        Runs of a backfill that was cancelled never start again, cleared or not.
        """
        api, wanted, found = self.stack.api, {*years}, dict[int, dict[str, Any]]()

        def over() -> bool:
            runs = [run for run in api.dag_runs(self.dag) if run["run_type"] == "backfill"]
            found.update((int(run["data_interval_start"][:4]), run) for run in runs)
            return wanted <= {year for year, run in found.items() if run["state"] in ("success", "failed")}

        until(over, f"the backfill goes on: {self.statuses()}", seconds=600, every=1)
        for each in api.backfills(self.dag):
            api.wait_for_backfill(each["id"])
        return {year: found[year] for year in years}

    def note(self, run_id: str) -> str:
        return str(self.stack.api.dag_run(self.dag, run_id)["note"])

    def end_leases(self) -> None:
        """As if nobody had renewed them for a month."""
        ended = "UPDATE txbatch.batch SET lease_until = clock_timestamp() - interval '30 days'"
        with session(self.stack.outage.of) as ask:
            ask(f"{ended} WHERE topology = '{self.dag}' AND status IN ('planned', 'emitted')")

    def statuses(self) -> dict[int, str]:
        """Of each txid."""
        return dict(self.stack.sql(f"SELECT txid, status FROM report.batches WHERE topology = '{self.dag}'"))

    def txid(self, year: int) -> int:
        """Of the batch of this year, which is committed."""
        of = f"topology = '{self.dag}' AND status = 'committed' AND interval_start = '{year}-01-01T00:00:00Z'"
        ((txid,),) = self.stack.sql(f"SELECT txid FROM report.batches WHERE {of}")
        return int(txid)

    def attempts(self, txid: int) -> list[tuple[str, str]]:
        """Run and status of each attempt."""
        of = f"topology = '{self.dag}' AND txid = {txid}"
        listed = self.stack.sql(f"SELECT run, status FROM report.attempts WHERE {of} ORDER BY attempt_id")
        return [(run.removeprefix(f"airflow:{self.dag}:"), status) for run, status in listed]

    def told(self, year: int, attempts: int) -> str:
        """The note of a run that counted this year."""
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        when = f"{year}-01-01 00:00 to {year + 1}-01-01 00:00 (UTC)"
        return f"txbatch: txid {self.txid(year)}, {when}: 1 record, 1 key, {tries}"

    def assert_counted_once(self) -> None:
        """Each committed year once, as the state and the contributions say."""
        committed = list(self.statuses().values()).count("committed")
        counted, once = self.stack.sql, [("word", committed)]
        assert counted(f"SELECT word, count FROM report.{self.dag}") == once
        assert counted(f"SELECT word, sum(count) FROM contribution.{self.dag} GROUP BY word") == once

    def _at(self, task: str) -> Path:
        return self.folder / f"{self.dag} at {task}"

    def _commit_blocked(self) -> bool:
        of = f"relation = 'state.{self.dag}'::regclass"
        return bool(self.stack.sql(f"SELECT 1 FROM pg_locks WHERE NOT granted AND {of}"))
