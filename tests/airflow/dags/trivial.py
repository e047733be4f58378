"""Airflow DAGs without a topology: a retry, a deferral, tasks side by side, a stubborn child, days."""

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import Asset, BaseOperator, CronDataIntervalTimetable, Metadata, dag, get_current_context, task

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)


class Deferred(BaseOperator):
    """Waits in the triggerer, then goes on in a worker."""

    def execute(self, context: Any) -> None:
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=0.5)), method_name="resume")

    def resume(self, context: Any, event: Any) -> None:
        self.log.info("resumed in the same try %s", context["ti"].try_number)


@dag(schedule=None, catchup=False)
def flaky() -> None:
    @task(retries=1, retry_delay=timedelta(seconds=0))
    def fail_once() -> None:
        if get_current_context()["ti"].try_number == 1:
            raise RuntimeError("the first try fails on purpose")
        print("the second try succeeds")

    fail_once() >> Deferred(task_id="deferred")


@dag(schedule=None, catchup=False, params={"folder": ""})
def side_by_side() -> None:
    """Four tasks that end only when all four have begun."""

    @task
    def meet(me: int) -> None:
        context = get_current_context()
        place = Path(context["params"]["folder"])
        (place / str(me)).touch()
        deadline = time.monotonic() + 60
        while len(list(place.iterdir())) < 4:
            if time.monotonic() > deadline:
                raise TimeoutError("the others did not come")
            time.sleep(0.05)

    meet.expand(me=[1, 2, 3, 4])


@dag(schedule=None, catchup=False, params={"pid_file": ""})
def stubborn() -> None:
    """A task whose child has a session of its own, ignores SIGTERM and tells its pid in a file."""

    @task
    def start_child() -> None:
        child = subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True, stdout=subprocess.PIPE)
        assert child.stdout
        child.stdout.readline()
        Path(get_current_context()["params"]["pid_file"]).write_text(str(child.pid))
        child.wait()

    start_child()


@dag(
    schedule=CronDataIntervalTimetable("0 0 * * *", "UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    end_date=datetime(2026, 1, 31, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
)
def daily() -> None:
    """A past month of days, each of which sends an asset event."""

    day = Asset("trivial_day")

    @task(outlets=[day])
    def announce() -> Any:
        yield Metadata(day, {"day": get_current_context()["data_interval_start"].date().isoformat()})

    announce()


daily()
flaky()
side_by_side()
stubborn()
