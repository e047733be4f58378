"""`make demo`: a real Airflow counts real text through two kills, and every count is compared with an independent count.

The demo counts into a database of its own, `demo` of the embedded PostgreSQL: your own data is not touched.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.markup import escape
from sqlalchemy import Engine, text

from txbatch import settings
from txbatch.core.errors import TxbatchError
from txbatch.local import count_words
from txbatch.local.airflow import LocalAirflow, refuse_second
from txbatch.local.airflow_api import AirflowApi
from txbatch.local.corpus import ensure_corpus
from txbatch.local.databases import demo_settings
from txbatch.local.down import only_up
from txbatch.local.metadata import metadata_database
from txbatch.local.signals import unwinding
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.database.psql import make_reader
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.schema import state_tables
from txbatch.storage.staging import Staging
from txbatch.tables import lines_of

SENTENCES = ("how are you", "nice to meet you", "what a good day")
TOPOLOGIES = ("sentences", "word_count")
KILLS = {
    "emit.manifest_written": "its emit, the work of Spark, after the result is written and before PostgreSQL has it",
    "commit.before_commit": "its commit, after all rows are written and before COMMIT",
}
RUN_SECONDS = 600
LOOK_FURTHER = """

What was built
  2 DAGs of Airflow, sentences and word_count, from the files in dags/ and jobs/
  2 tables in PostgreSQL, report.sentences and report.word_count
Where it is
  the database, the logs and the text are in .txbatch/; `make down` stops everything, `make clean` removes everything
What to open
  bin/txbatch demo query word_count the      one count
  bin/txbatch demo psql                      both tables, with SQL
  make up                                    Airflow in your browser
What to type next
  make wheel && bin/txbatch init ../shop     a project of your own"""
LEGEND = """\
  attempt 1:2 is the second try at batch 1; superseded: a newer try has taken its place
  a record is a sentence of sentences, or a line of the files of word_count"""
EXPECTED = (TxbatchError, TimeoutError, OSError)
console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


class DemoFailed(Exception):
    """The demo did not show the promised result."""


def main() -> int:
    """Return exit code 0 only if both results equal the independent counts, after both kills."""
    began = time.monotonic()
    try:
        home = settings.home()
        with unwinding(), only_up(home, "an Airflow runs already in {home}: look at it there"):
            refuse_second(home)
            _demo(demo_settings(home))
    except DemoFailed as failure:
        console.print(f"[bold red]The demo failed:[/] {escape(str(failure))}")
        return 1
    except (*EXPECTED, httpx.HTTPError) as error:
        print(f"make demo: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, SystemExit):
        print("stopped; `make demo` begins anew")
        return 130
    console.print(f"\nDone in {time.monotonic() - began:.0f} s.{LOOK_FURTHER}", soft_wrap=True)
    return 0


def _demo(config: settings.Settings) -> None:
    folder = config.home / "demo"
    corpus = ensure_corpus(folder)
    _say(f"corpus: {sum(1 for _ in corpus.iterdir())} files in {_relative(corpus)}")
    engine = connect(config.database_url)
    migrate(engine)
    make_reader(engine)
    _start_afresh(engine, Staging(config.staging))
    with tempfile.TemporaryDirectory(prefix="kills.", dir=folder) as markers:
        _say("starting Airflow: API server, DAG processor, triggerer, then the scheduler (half a minute)")
        root = settings.project_root()
        with LocalAirflow(
            config.home,
            root / "dags",
            root / "plugins",
            environment=_environment(config, corpus, Path(markers)),
            database_url=metadata_database(config.home),
        ) as airflow:
            _say(f"Airflow is ready at {airflow.url}")
            play(airflow, engine, corpus, Path(markers))


def play(airflow: LocalAirflow, engine: Engine, corpus: Path, markers: Path) -> None:
    """Run both topologies through the kills on a ready Airflow, then report and compare the counts."""
    with _timeline(engine, markers):
        _run_all(airflow)
    killed = _killed(markers)
    if len(killed) < len(KILLS):
        raise DemoFailed(f"of {' and '.join(KILLS.values())}, these were killed: {', '.join(killed) or 'none'}")
    _report(engine, killed)
    _compare_all(engine, corpus)


def _environment(config: settings.Settings, corpus: Path, markers: Path) -> dict[str, str]:
    return {
        "TXBATCH_HOME": str(config.home),
        "TXBATCH_DATABASE_URL": config.database_url,
        "TXBATCH_STAGING": config.staging,
        "TXBATCH_FAILPOINTS": ",".join(f"{name}=kill:{markers / name}" for name in KILLS),
        "WORD_COUNT_FOLDER": str(corpus),
    }


def _start_afresh(engine: Engine, staging: Staging) -> None:
    """Drop the counts of an earlier demo."""
    for known in [row["topology"] for row in LedgerReader(engine).status() if row["topology"] in TOPOLOGIES]:
        with transaction(engine) as connection:
            state_tables.drop(connection, known)
        staging.topology(known).remove()
        _say(f"dropped {known} of an earlier demo")


def _run_all(airflow: LocalAirflow) -> None:
    pool = ThreadPoolExecutor(len(TOPOLOGIES))
    try:
        for done in [pool.submit(_run_until_nothing_new, airflow, topology) for topology in TOPOLOGIES]:
            done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # if a topology failed, the rest ends with Airflow


def _run_until_nothing_new(airflow: LocalAirflow, topology: str) -> None:
    """Trigger runs, each after the run before, until a run finds nothing new."""
    with airflow.api() as api:
        api.wait_for_dag(topology, parsed_after=airflow.started_at)
        api.unpause(topology)
        while _run_once(api, topology):
            pass


def _run_once(api: AirflowApi, topology: str) -> bool:
    run_id = api.trigger(topology, run_id=f"demo-{datetime.now(UTC):%m%d-%H%M%S}")
    if api.wait_for_run(topology, run_id, timeout=RUN_SECONDS)["state"] != "success":
        raise DemoFailed(f"run {run_id} of {topology} failed:\n{_failed_log(api, topology, run_id)}")
    states = {task["task_id"]: task["state"] for task in api.task_instances(topology, run_id)}
    return bool(states["initialize_transaction"] != "skipped")


def _failed_log(api: AirflowApi, topology: str, run_id: str) -> str:
    """Return the end of the failed task's log."""
    failed = next(task for task in api.task_instances(topology, run_id) if task["state"] == "failed")
    return api.task_log(topology, run_id, failed["task_id"], failed["try_number"])[-2000:]


@contextmanager
def _timeline(engine: Engine, markers: Path) -> Iterator[None]:
    """Context manager. Print events from a thread until the block ends."""
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(engine, markers, over))
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _tell(engine: Engine, markers: Path, over: threading.Event) -> None:
    told: set[str] = set()
    while not over.wait(0.5):
        events = [f"{who}: [bold red]SIGKILL to {what}[/]" for who, what in _killed(markers).items()]
        with suppress(TxbatchError):  # while the demo ends, the database may already be stopped
            for topology in TOPOLOGIES:
                events += [_attempt_line(row) for row in reversed(LedgerReader(engine).attempts_if_known(topology))]
        for event in [event for event in events if event not in told]:
            told.add(event)
            _say(event)


def _killed(markers: Path) -> dict[str, str]:
    """Return the kills until now, by topology and attempt."""
    told = {name: markers / name for name in KILLS}
    return {file.read_text(): KILLS[name] for name, file in told.items() if file.exists() and file.stat().st_size}


def _attempt_line(row: dict[str, Any]) -> str:
    colour = {"committed": "green", "superseded": "red", "failed": "red"}.get(row["status"], "cyan")
    return f"{row['topology']} {row['attempt']}: [{colour}]{row['status']}[/]"


def _report(engine: Engine, killed: Mapping[str, str]) -> None:
    with transaction(engine) as connection:
        timeline = connection.execute(query("timeline"), {"topologies": list(TOPOLOGIES)}).mappings().all()
        top = (
            connection.execute(
                text("SELECT word, count, txid FROM report.word_count ORDER BY count DESC, word LIMIT 10")
            )
            .mappings()
            .all()
        )
        words = (
            connection.execute(text("SELECT word, count, txid FROM report.sentences ORDER BY txid, word"))
            .mappings()
            .all()
        )
    _print_table("Attempts, in the order they began", [_told(dict(row), killed) for row in timeline])
    console.print(LEGEND, soft_wrap=True)
    _print_table("report.word_count, the ten most frequent words", top)
    _print_table("report.sentences", words)


def _compare_all(engine: Engine, corpus: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sentences.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
        _compare(engine, "sentences", Path(folder))
    _compare(engine, "word_count", corpus)


def _compare(engine: Engine, state: str, folder: Path) -> None:
    """Raise DemoFailed unless every count of the report equals the independent count."""
    counted = subprocess.run([sys.executable, "-I", count_words.__file__, str(folder)], capture_output=True, check=True)
    expected: dict[str, int] = json.loads(counted.stdout)
    with transaction(engine) as connection:
        rows = connection.execute(text(f"SELECT word, count FROM report.{state}"))  # noqa: S608 - one of TOPOLOGIES
        found = {word: count for word, count in rows.tuples()}  # noqa: C416 - a Result is no mapping
    wrong = sorted(word for word in expected.keys() | found.keys() if expected.get(word) != found.get(word))
    if wrong:
        shown = ", ".join(f"{word}: {found.get(word)} instead of {expected.get(word)}" for word in wrong[:5])
        raise DemoFailed(f"{len(wrong)} counts of {state} are wrong: {shown}")
    _say(
        f"[bold green]equal[/]: all {len(found):,} counts of {state}, {sum(found.values()):,} words, "
        "agree with an independent count"
    )


def _told(row: Mapping[str, Any], killed: Mapping[str, str]) -> dict[str, Any]:
    """Return a row for an attempt, with its kill. After a killed emit the next attempt recovers, after a killed commit
    the next try.
    """
    what = killed.get(f"{row['topology']} {row['attempt']}", "").partition(",")[0].removeprefix("its ")
    return {
        "topology": row["topology"],
        "attempt": row["attempt"],
        "status": row["status"],
        "killed": what,
        "began": f"{row['started_at']:%H:%M:%S}",
        "took": row["duration"],
        "records": row["records"],
        "run": row["run_id"],
    }


def _print_table(title: str, rows: Any) -> None:
    lines = lines_of([dict(row) for row in rows], cut=("run", "killed"), width=console.width)
    bold = (f"[bold]{escape(line)}[/]" for line in (title, lines[0]))
    console.print("", *bold, *map(escape, lines[1:]), sep="\n", soft_wrap=True)


def _say(what: str) -> None:
    console.print(f"[dim]{datetime.now().astimezone():%H:%M:%S}[/] {what}")


def _relative(path: Path) -> Path:
    root = settings.project_root()
    return path.relative_to(root) if path.is_relative_to(root) else path


if __name__ == "__main__":
    raise SystemExit(main())
