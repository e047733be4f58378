"""`make up`, `txbatch up`: Airflow with the pipelines on this machine alone, until Ctrl-C, SIGTERM or `down`."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from sqlalchemy import Engine

from txbatch import settings
from txbatch.core.errors import TxbatchError
from txbatch.embedded import postgres
from txbatch.fit import check_fit
from txbatch.local.airflow import LocalAirflow
from txbatch.local.airflow_api import AirflowApi
from txbatch.local.corpus import ensure_corpus
from txbatch.local.down import only_up
from txbatch.local.flights import ensure_flights
from txbatch.local.looking import looks
from txbatch.local.metadata import metadata_database
from txbatch.local.processes import memory
from txbatch.local.shop import SOURCE, ensure_shop
from txbatch.local.signals import ignore_signals, unwinding
from txbatch.places import command, in_checkout
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction

# Unpausing the examples starts nothing: each is triggered, backfilled, or waits for an asset event.
EXAMPLES = ("sentences", "word_count", "flights", "word_count_consumer", "sales", "sales_by_day")
READY = """\
Airflow is ready after {seconds:.0f} s, and takes {megabytes:,.0f} MB with PostgreSQL

  {url}
  user {username}, password in {password_file}

Try
{examples}  any run     clear it: "already committed as txid n", and no number changes
  your own    a new DAG is paused, and its runs stay queued, until you unpause it: the switch beside its name, or
              AIRFLOW_HOME={airflow_home} {airflow} dags unpause NAME

Ctrl-C here, or `{down}` elsewhere, stops everything."""
TRY = {
    "word_count": """\
  word_count  in the UI: DAGs, word_count, Trigger; then `bin/txbatch query word_count the self`
""",
    "flights": """\
  flights     in the UI: DAGs, flights, Trigger, Catch up 2013-01-01/2014-01-01, and empty the logical date: a year by one run;
              or Trigger, Backfill; or, with a zone:
              AIRFLOW_HOME={airflow_home} .venv/bin/airflow backfill create --dag-id flights \\
                  --from-date 2013-01-01T00:00:00-05:00 --to-date 2013-01-10T00:00:00-05:00 --max-active-runs 8
""",
    "sales": """\
  sales       in the UI: Trigger; then `bin/txbatch demo sell`, and trigger again: the new sales are counted, each once
""",
}
_SESSIONS_SECONDS = 5


def main() -> int:
    """Return exit code 0 if stopped on purpose, 1 after a failure."""
    try:
        check_fit("airflow")
        home = settings.home()
        with unwinding(), only_up(home), _postgres_stopped_after(home):
            _up()
    except (TxbatchError, TimeoutError, OSError) as error:
        print(f"{command('up')}: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, SystemExit):
        pass
    print("stopped")
    return 0


def _up() -> None:
    began, config = time.monotonic(), settings.ensure_database(settings.resolve())
    _migrate(config.database_url)
    print("starting Airflow: API server, DAG processor, triggerer, then the scheduler (half a minute)", flush=True)
    root, metadata = settings.project_root(), metadata_database(config.home)
    with LocalAirflow(
        config.home, root / "dags", root / "plugins", environment=environment(config), database_url=metadata
    ) as airflow:
        _tell(airflow, config.home, time.monotonic() - began)
        with airflow.api() as api:
            _unpause(airflow, api)
        airflow.wait()


def environment(config: settings.Settings) -> Mapping[str, str]:
    """Return the environment for Airflow's processes, and prepare the examples' input."""
    return {
        "TXBATCH_HOME": str(config.home),
        "TXBATCH_DATABASE_URL": config.database_url,
        "TXBATCH_STAGING": config.staging,
        **(_inputs(config.home / "demo") if in_checkout() else {}),
        **(_shop(config) if in_checkout() else {}),
    }


def _inputs(demo: Path) -> Mapping[str, str]:
    """Prepare the examples' input, and return its folders. A folder named by the caller stays, like in `txbatch run`."""
    prepared = {"WORD_COUNT_FOLDER": ensure_corpus, "FLIGHTS_FOLDER": ensure_flights}
    return {name: os.environ.get(name) or str(ensure(demo)) for name, ensure in prepared.items()}


def _shop(config: settings.Settings) -> Mapping[str, str]:
    """Prepare the shop's database in the embedded PostgreSQL, unless the caller names another."""
    variable = settings.source_variable(SOURCE)
    return {variable: ensure_shop(config.home)} if config.embedded and variable not in os.environ else {}


def _migrate(database_url: str) -> None:
    engine = connect(database_url)
    migrate(engine)
    engine.dispose()  # any session left at the end belongs to another program


def _examples() -> list[str]:
    """Return the examples still in dags/. Users may remove examples; a project has none."""
    dags = settings.project_root() / "dags"
    return [name for name in EXAMPLES if in_checkout() and (dags / f"{name}.py").is_file()]


def _unpause(airflow: LocalAirflow, api: AirflowApi) -> None:
    """Unpause the examples. If a changed example does not load, print the error, and go on."""
    for dag_id in _examples():
        try:
            api.wait_for_dag(dag_id, parsed_after=airflow.started_at)
            api.unpause(dag_id)
        except TimeoutError as error:
            first, *_, last = str(error).splitlines() * 2  # a traceback is in between
            print(f"{command('up')}: {first}" + (f" {last}" if last != first else ""), file=sys.stderr, flush=True)


def _tell(airflow: LocalAirflow, home: Path, seconds: float) -> None:
    bytes_used = memory([*(process.pid for process in airflow.processes()), *postgres.processes(home)])
    said = {"url": airflow.url, "username": airflow.username, "password_file": _relative(airflow.password_file)}
    said["airflow_home"] = shlex.quote(str(_relative(airflow.password_file.parent)))
    said |= {"airflow": ".venv/bin/airflow" if in_checkout() else "airflow", "down": command("down")}
    examples = "".join(TRY.get(name, "") for name in _examples()).format(**said)
    print(READY.format(seconds=seconds, megabytes=bytes_used / 1e6, examples=examples, **said), flush=True)


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


@contextlib.contextmanager
def _postgres_stopped_after(home: Path) -> Iterator[None]:
    """Context manager. Stop PostgreSQL at the end of the block, unless PostgreSQL is in use by other programs."""
    try:
        yield
    finally:
        with ignore_signals():
            if users := _sessions(home):
                print(f"PostgreSQL goes on, in use by {', '.join(users)}; `{command('down')}` stops it", flush=True)
            else:
                postgres.stop(home)


def _sessions(home: Path) -> list[str]:
    """Return the programs connected to the embedded PostgreSQL after Airflow and its sessions are gone: a `txbatch
    run`, for example.
    """
    if not postgres.is_running(home):
        return []
    engine = connect(postgres.url(home))
    try:
        for _ in looks(_SESSIONS_SECONDS, every=0.1):
            if not (found := _others(engine)):
                break
    finally:
        engine.dispose()
    return found


def _others(engine: Engine) -> list[str]:
    with transaction(engine) as connection:
        return list(connection.scalars(query("other_sessions")))


if __name__ == "__main__":
    raise SystemExit(main())
