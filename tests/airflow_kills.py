"""An Airflow of which tests kill processes, while one run is in the middle of each task and one is deferred; and the sums."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psutil
from airflow_support import TASKS
from airflow_years import GREEN, Years
from capabilities import as_a_user
from click.testing import CliRunner
from databases import session
from support import until

from txbatch.cli.main import main
from txbatch.local.ports import reserve_port

FIRST, EMIT, COMMIT, LAST = TASKS
DEFERRED = "deferred"
# Where the runs are, in the order of their txids: none waits for a later one.
PLACES = (LAST, COMMIT, DEFERRED, EMIT, FIRST)
STARTED_SECONDS, RENEWED_SECONDS = 300, 10
# What Airflow looks at before it takes somebody for dead. It waits for as long as its configuration says; tests do not.
AN_HOUR_AGO = {
    "worker": "UPDATE task_instance SET last_heartbeat_at = last_heartbeat_at - interval '1 hour' WHERE state = 'running'",
    **{
        name: f"UPDATE job SET latest_heartbeat = latest_heartbeat - interval '1 hour' WHERE job_type = '{job}'"
        for name, job in {"triggerer": "TriggererJob", "scheduler": "SchedulerJob"}.items()
    },
}
At = dict[str, int]


@dataclass(frozen=True)
class Worker:
    """A worker of Airflow at work: the process that supervises a task, that of the task, and those below."""

    supervisor: psutil.Process
    task: psutil.Process
    below: tuple[psutil.Process, ...]

    @classmethod
    def of(cls, pid: int) -> Worker:
        """Return the worker of a task's process."""
        task = psutil.Process(pid)
        supervisor = task.parent()
        assert supervisor is not None
        return cls(supervisor, task, tuple(task.children(recursive=True)))


@dataclass(frozen=True)
class Kills(Years):
    """The DAG of tests/airflow/dags/kills.py, whose runs are named by their years, and the Airflow that has it alone."""

    dag: str = "kills"
    database: str = ""  # Airflow's own
    begun: set[int] = field(default_factory=set)
    commits: ExitStack = field(default_factory=ExitStack)  # its end lets the commit go on that is held

    @contextmanager
    def at_each_task(self, first: int) -> Iterator[At]:
        """Context manager. A run is in the middle of each task, and one waits deferred for its turn, until the block ends.

        The years of the runs, from `first` on, by where the runs are.
        """
        years = {place: first + number for number, place in enumerate(PLACES)}
        with ExitStack() as stays:
            stays.enter_context(self.held(LAST))
            self.begin(years[LAST], LAST)
            with self.held(emission(years[COMMIT])):
                self.begin(years[COMMIT], emission(years[COMMIT]))
                self.defer(years[DEFERRED])
                stays.enter_context(self.held(emission(years[EMIT])))
                self.begin(years[EMIT], emission(years[EMIT]))
                stays.enter_context(self.held(FIRST))
                self.begin(years[FIRST], FIRST)
                stays.callback(self.commits.close)
                # The last one: a session waits a minute for a lock, no longer.
                self.commits.enter_context(self.held(COMMIT))
            self.until_at(COMMIT)
            yield years

    def begin(self, year: int, place: str) -> None:
        """Start the run of a year, and wait until it is held."""
        self.trigger_year(year)
        self.until_at(place)

    def defer(self, year: int) -> None:
        """Start the run of a year, and wait until it waits for its turn."""
        waits = self.trigger_year(year)
        until(lambda: self.state(waits, COMMIT) == "deferred", f"{waits} does not wait: {self.statuses()}")

    def trigger_year(self, year: int) -> str:
        """Start the run of a year."""
        self.begun.add(year)
        return self.trigger(str(year), year)

    def shows_life(self, txid: int) -> bool:
        """Whether somebody renews the lease of a batch: a wait does so every two seconds."""
        asked = f"SELECT lease_until FROM txbatch.batch WHERE topology = '{self.dag}' AND txid = {txid}"
        before = self.stack.sql(asked)
        time.sleep(RENEWED_SECONDS)
        return self.stack.sql(asked) != before

    def end_lease(self, txid: int) -> None:
        """As if nobody had renewed it for an hour."""
        with session(self.stack.outage.of) as ask:
            of = f"topology = '{self.dag}' AND txid = {txid}"
            ask(f"UPDATE txbatch.batch SET lease_until = clock_timestamp() - interval '1 hour' WHERE {of}")

    def planned(self) -> dict[int, int]:
        """The txid of each year that has one."""
        of = f"topology = '{self.dag}' AND status <> 'aborted'"
        found = self.stack.sql(f"SELECT interval_start, txid FROM report.batches WHERE {of}")
        return {start.year: txid for start, txid in found}

    def workers(self) -> list[Worker]:
        """The workers that are at work, one for each task."""
        with session(self.database) as ask:
            found = [Worker.of(pid) for (pid,) in ask("SELECT pid FROM task_instance WHERE state = 'running'")]
        assert len(found) == len(TASKS)
        return found

    def kill_workers(self) -> None:
        """Kill the workers at work, each with its task; what is below has to end by itself."""
        workers = self.workers()
        for each in workers:
            each.supervisor.kill()
            each.task.kill()
        below = [process for each in workers for process in each.below]
        assert below, "no driver is at work"
        until(lambda: not living(below), "the driver outlives its task")
        self.an_hour_goes_by("worker")

    def kill(self, component: str) -> None:
        """Kill a component, and what is below, as the end of a container does."""
        kill_all(self.kill_alone(component))

    def kill_alone(self, component: str) -> list[psutil.Process]:
        """Kill a component, and return what is below, which goes on without it."""
        process = self.stack.airflow._processes[component]
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        return below

    def cut_power(self) -> None:
        """Kill all that Airflow has at work, which nobody misses for an hour."""
        airflow = self.stack.airflow
        kill_all(all_of_it := airflow.processes())
        for process in airflow._processes.values():
            process.wait()
        until(lambda: not living(all_of_it), "a process outlives the power")
        for each in AN_HOUR_AGO:
            self.an_hour_goes_by(each)

    def assert_found_by_its_user(self, left: Iterable[psutil.Process]) -> None:
        """`make down` finds what goes on, also where Airflow hides it from all but root."""
        with as_a_user():
            assert {*living(left)} <= {*self.stack.airflow.processes()}

    def status(self) -> dict[str, Any]:
        """What `txbatch status` tells of the topology."""
        where = {"TXBATCH_DATABASE_URL": self.stack.outage.of, "TXBATCH_HOME": str(self.stack.home)}
        result = CliRunner().invoke(main, ["status", self.dag, "--json"], env=where)
        assert result.exit_code == 0, result.output
        (told,) = json.loads(result.stdout)
        return dict(told)

    def an_hour_goes_by(self, of: str) -> None:
        """As if somebody had shown no sign of life for an hour."""
        with session(self.database) as ask:
            ask(AN_HOUR_AGO[of])

    def start_again(self, *components: str) -> None:
        """Start components as `make up` does, and wait until all of Airflow is well."""
        airflow = self.stack.airflow
        airflow.started_at, port = datetime.now(UTC), int(airflow.url.rpartition(":")[2])
        with reserve_port(port) if "api-server" in components else nullcontext(port) as kept:
            assert kept == port, "another program has taken the port meanwhile"
            for each in components:
                del airflow._processes[each]  # which was killed
            deadline = time.monotonic() + STARTED_SECONDS
            airflow._start_components(components, deadline)
            airflow._wait_until_healthy(deadline)

    def start_scheduler_with(self, environment: Mapping[str, str]) -> None:
        """Start the scheduler anew, at rest, so that its workers have this in their environment."""
        self.kill("scheduler")
        self.stack.airflow._environment.update(environment)
        self.start_again("scheduler")

    def until_red(self, years: At) -> None:
        """Until the runs of these years have failed, as Airflow's database says: nobody else answers."""

        def red() -> bool:
            with session(self.database) as ask:
                states = dict(ask("SELECT run_id, state FROM dag_run"))
            return {states[str(year)] for year in years.values()} == {"failed"}

        until(red, f"the runs go on: {self.statuses()}")

    def clear_failed(self, year: int) -> None:
        """Clear the run of a year, as its menu does: what is not green."""
        self.stack.api.clear_run(self.dag, str(year), only_failed=True)

    def assert_gone_on(self, years: At, planned: dict[int, int], tries: int) -> None:
        """The runs are green with the txids that they had. A task at work had so many tries, any other has one."""
        for place, year in years.items():
            assert self.end(str(year)) == GREEN
            of_tasks = dict.fromkeys(TASKS, 1) | ({place: tries} if place in TASKS else {})
            tried = self.stack.tries(self.dag, str(year))
            assert tried == of_tasks, f"at {place}: {tried}"
            self.assert_told(year, attempts=of_tasks[EMIT])
        self.assert_kept(planned)

    def assert_told(self, year: int, attempts: int) -> None:
        """The note, the attempts and the asset event of a run that counted this year."""
        assert self.note(str(year)) == self.told(year, attempts)
        assert self.attempts(self.txid(year))[-1] == (str(year), "committed")
        assert self.stack.announced(self.dag).count(self.txid(year)) == 1

    def assert_kept(self, planned: dict[int, int]) -> None:
        """What was planned has its txid still, and all is committed, each year once."""
        now = self.planned()
        assert planned == {year: now[year] for year in planned}
        assert {*self.statuses().values()} == {"committed"}
        self.assert_counted_once()

    def assert_counted_once(self) -> None:
        """State and contributions are what the years come to that were begun."""
        decades: dict[str, list[int]] = {}
        for year in sorted(self.begun):
            decades.setdefault(f"{year // 10}0s", []).append(year)
        once = [(decade, len(years), sum(years)) for decade, years in decades.items()]
        counted, by = self.stack.sql, "GROUP BY decade ORDER BY decade"
        assert counted("SELECT decade, count, years FROM report.kills ORDER BY decade") == once
        assert counted(f"SELECT decade, sum(count), sum(years) FROM contribution.kills {by}") == once


def emission(year: int) -> str:
    """Where the emission of a year is held."""
    return f"{EMIT} {year}"


def living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill those that have not ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
