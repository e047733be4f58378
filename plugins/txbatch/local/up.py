"""`make up`: Airflow with the pipelines on this machine alone, until Ctrl-C, SIGTERM or `make down`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from txbatch import settings
from txbatch.core.errors import TxbatchError
from txbatch.local import postgres
from txbatch.local.airflow import LocalAirflow, LocalAirflowError
from txbatch.local.airflow_api import AirflowApi, AirflowApiError
from txbatch.local.corpus import ensure_corpus
from txbatch.local.down import only_up
from txbatch.local.flights import ensure_flights
from txbatch.local.metadata import metadata_database
from txbatch.local.postgres import EmbeddedPostgresError
from txbatch.local.processes import memory
from txbatch.local.signals import uninterrupted, unwinding
from txbatch.postgres.engine import connect
from txbatch.postgres.migrate import migrate

# Unpausing these starts nothing: they are triggered, backfilled, or wait for an asset event.
UNPAUSED = ("sentences", "word_count", "flights", "word_count_consumer")
READY = """\
Airflow is ready after {seconds:.0f} s, and takes {megabytes:,.0f} MB with PostgreSQL

  {url}
  user {username}, password in {password_file}

Try
  word_count  in the UI: DAGs, word_count, Trigger; then `bin/txbatch query word_count the self`
  flights     in the UI: DAGs, flights, Trigger, Backfill; or, with a zone (see docs/flights.md):
              AIRFLOW_HOME={airflow_home} .venv/bin/airflow backfill create --dag-id flights \\
                  --from-date 2013-01-01T00:00:00-05:00 --to-date 2013-01-10T00:00:00-05:00 --max-active-runs 8
  any run     clear it: "already committed as txid n", and no number changes

Ctrl-C here, or `make down` elsewhere, stops everything."""


def main() -> int:
    """Exit code 0 when it was stopped on purpose, 1 when something failed."""
    home = settings.home()
    try:
        with unwinding(), only_up(home), _postgres_stopped_after(home):
            _up()
    except (LocalAirflowError, AirflowApiError, EmbeddedPostgresError, TxbatchError, TimeoutError, OSError) as error:
        print(f"make up: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, SystemExit):
        pass
    print("stopped")
    return 0


def _up() -> None:
    began, config = time.monotonic(), settings.load()
    migrate(connect(config.database_url))
    print("starting Airflow: API server, scheduler, DAG processor, triggerer", flush=True)
    root, metadata = settings.project_root(), metadata_database(config.home)
    with LocalAirflow(
        config.home, root / "dags", root / "plugins", environment=environment(config), database_url=metadata
    ) as airflow:
        _tell(airflow, config.home, time.monotonic() - began)
        with airflow.api() as api:
            _unpause(airflow, api)
        airflow.wait()


def environment(config: settings.Settings) -> Mapping[str, str]:
    """What Airflow's processes need to know; prepares the pipelines' input."""
    demo = config.home / "demo"
    return {
        "TXBATCH_HOME": str(config.home),
        "TXBATCH_DATABASE_URL": config.database_url,
        "TXBATCH_STAGING": config.staging,
        "WORD_COUNT_FOLDER": str(ensure_corpus(demo)),
        "FLIGHTS_FOLDER": str(ensure_flights(demo)),
    }


def _unpause(airflow: LocalAirflow, api: AirflowApi) -> None:
    for dag_id in UNPAUSED:
        api.wait_for_dag(dag_id, parsed_after=airflow.started_at)
        api.unpause(dag_id)


def _tell(airflow: LocalAirflow, home: Path, seconds: float) -> None:
    bytes_used = memory([*(process.pid for process in airflow.processes()), *postgres.processes(home)])
    said = {"url": airflow.url, "username": airflow.username, "airflow_home": _relative(airflow.password_file.parent)}
    password_file = _relative(airflow.password_file)
    print(READY.format(seconds=seconds, megabytes=bytes_used / 1e6, password_file=password_file, **said), flush=True)


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


@contextlib.contextmanager
def _postgres_stopped_after(home: Path) -> Iterator[None]:
    try:
        yield
    finally:
        with uninterrupted():
            postgres.stop(home)


if __name__ == "__main__":
    raise SystemExit(main())
