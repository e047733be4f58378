"""The command `txbatch`: the same steps without Airflow, and what people ask of the ledger."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Engine

from txbatch import __version__, settings
from txbatch.cli import arguments, database
from txbatch.cli.ask import ask
from txbatch.cli.change import change
from txbatch.cli.follow import LATENCY_SECONDS, Following, newest
from txbatch.cli.grants import grants
from txbatch.cli.history import as_of, why
from txbatch.cli.plan.explain import appeared, preview
from txbatch.cli.plan.plan_rebuild import SAMPLE, preview_rebuild, show_rebuild
from txbatch.cli.plan.plan_restate import preview_restate, show_restate
from txbatch.cli.printing import Rows, errors_told, prints_rows, show_checks, show_plan, show_reasons, show_status
from txbatch.cli.progress import told
from txbatch.cli.project.doctor import check_all
from txbatch.cli.project.starter import make_project
from txbatch.cli.rebuild import rebuild
from txbatch.cli.restate import restate, tell_committed, tell_counted
from txbatch.cli.retention import gc, kept
from txbatch.cli.verify import verify
from txbatch.core.batch.transaction import Run
from txbatch.core.errors import TransientError, UnknownName
from txbatch.core.text import shown
from txbatch.fit import check_fit
from txbatch.formats.changes import changed
from txbatch.launch.job_file import check_emission, load_job
from txbatch.launch.jobs import jobs_above
from txbatch.launch.submission import LOCAL_MASTER
from txbatch.places import in_checkout, install
from txbatch.postgres.apart.warehouses import Warehouses, identity_of
from txbatch.postgres.database.engine import check_server, connect, transaction
from txbatch.postgres.database.migrate import migrate as migrate_database
from txbatch.postgres.database.psql import REPORT, make_reader
from txbatch.postgres.database.psql import command as psql_command
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.reading.reader import Reader
from txbatch.postgres.schema import state_tables
from txbatch.postgres.tables.rows import unknown_topology
from txbatch.run.calls import RUN_PREFIX
from txbatch.run.progress import watched
from txbatch.storage.staging import Staging
from txbatch.wiring import open_runner

ORDER = (
    *(
        "init",
        "run",
        "plan",
        "status",
        "batches",
        "query",
        "ask",
        "why",
        "as-of",
        "psql",
        "abort",
        "restate",
        "verify",
        "gc",
        "change",
        "rebuild",
        "doctor",
        "up",
        "down",
        "migrate",
        "grants",
        "drop",
    ),
    "demo",
)
EXAMPLE = "jobs/sentences.py" if in_checkout() else "JOB"
EPILOG = (
    """\b
Example:
  txbatch run jobs/sentences.py && txbatch query sentences how are

`txbatch run --help` says more of a command. Read on in docs/: operate.md, jobs.md to write a job, reports.md for SQL."""
    if in_checkout()
    else """\b
Example:
  txbatch init shop && cd shop && make demo && make test

`txbatch run --help` says more of a command."""
)
# Of a batch or of an attempt, whichever is printed.
BATCH_COLUMNS = (
    *(
        "txid",
        "attempt",
        "status",
        "restates",
        "replaced_by",
        "attempts",
        "interval_start",
        "interval_end",
        "records",
        "kept",
        "keys",
        "late",
        "watermark",
        "closed_to",
        "ahead",
        "ahead_to",
    ),
    *("run", "started_at", "committed_at", "took"),
)
DROPPED = (
    "keys",
    "kept",
    "took",
    "started_at",
    "attempts",
    "interval_end",
    "committed_at",
    "late",
    "watermark",
    "closed_to",
    "ahead_to",
)
prints_batches = prints_rows(*BATCH_COLUMNS, nothing="nothing yet", show=show_reasons, drop=DROPPED, cut=("run",))


class ByUse(click.Group):
    """Lists its commands in the order in which one comes to need them, what they do in whole."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        first = [name for name in ORDER if name in self.commands]
        return first + [name for name in self.commands if name not in first]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = [(name, self.commands[name]) for name in self.list_commands(ctx) if not self.commands[name].hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(500)) for name, command in listed])


@click.group(cls=ByUse, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__)
@click.option("-v", "--verbose", is_flag=True, help="Say more, and where an error came from.")
def main(verbose: bool) -> None:
    """Exactly-once batch aggregation on Airflow, Spark and PostgreSQL.

    The database is TXBATCH_DATABASE_URL, else the embedded PostgreSQL under .txbatch/, which is started when needed.
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("txbatch").setLevel(logging.DEBUG if verbose else logging.INFO)


@main.command()
@click.argument("folder", type=arguments.TEXT)
@prints_rows("file", nothing="")
def init(folder: str) -> Rows:
    """Make a project of your own in FOLDER: a job that works, its DAG, its test and data to run on.

    FOLDER must be empty, or not there yet. `make demo` and `make test` in it do the rest.
    """
    return [{"file": str(Path(folder, file))} for file in make_project(Path(folder))]


@main.command()
def up() -> None:
    """Start Airflow with the project's DAGs on this machine alone, until Ctrl-C or `txbatch down`.

    A project is the nearest folder at or above this one that has dags/ and jobs/.
    """
    with _packages_told():
        check_fit("airflow")
        from txbatch.local import up as local
    sys.exit(local.main())


@main.command()
def down() -> None:
    """Stop the Airflow and the PostgreSQL of this home, whoever started them."""
    with _packages_told():
        from txbatch.local import down as local
    sys.exit(local.main())


@contextmanager
def _packages_told() -> Iterator[None]:
    """Context manager. As `errors_told`, and for a package of the local stack that is missing say how it is installed."""
    with errors_told():
        try:
            yield
        except ModuleNotFoundError as error:
            raise TransientError(f"{error.name} is not installed beside txbatch; {install('embedded')}") from error


@main.command()
@prints_rows("number", "migration", nothing="up to date")
def migrate() -> Rows:
    """Bring the database's ledger to this version."""
    where = _where()
    engine = _connect(where)
    applied = migrate_database(engine)
    if where.embedded:
        make_reader(engine)
    return [{"number": each.number, "migration": each.name} for each in applied]


@main.command()
@click.argument("job", type=arguments.TEXT)
@click.option("--run-id", type=arguments.TEXT, help="The run's name: the same name meets the same batch again.")
@arguments.interval_option
@arguments.param_option
@click.option("--cron", type=arguments.TEXT, help="Cut the interval at these times: a batch each, in order.")
@click.option("--timezone", type=arguments.TEXT, help="The zone of --cron.  [default: UTC]")
@click.option("--until-idle", is_flag=True, help="Go on until there is nothing new.")
@click.option("--follow", is_flag=True, help="Go on for good, until SIGTERM: count what comes as soon as it is there.")
@click.option(
    "--since", type=arguments.MOMENT, help="Where --follow begins, for a spout that reads by time; with --cron."
)
@click.option("--delay", type=arguments.LIMIT, help="Take an interval for over so many seconds later: files come late.")
@click.option(
    "--min-batch", type=arguments.LIMIT, help="Wait for so many bytes of files, or records of a log, with --follow,"
)
@click.option(
    "--max-latency", type=arguments.LIMIT, help=f"but no longer than so many seconds; else {LATENCY_SECONDS}."
)
@click.option("--master", type=arguments.MASTER, default=LOCAL_MASTER, show_default=True, help="Spark master.")
@prints_rows(*BATCH_COLUMNS, nothing="nothing new", drop=DROPPED, cut=("run",))
def run(
    job: str,
    run_id: str | None,
    interval: tuple[datetime, datetime] | None,
    params: tuple[tuple[str, Any], ...],
    cron: str | None,
    timezone: str | None,
    until_idle: bool,
    follow: bool,
    since: datetime | None,
    min_batch: int | None,
    max_latency: int | None,
    delay: int | None,
    master: str,
) -> Rows:
    """Run a batch of the job file JOB. First finishes what a killed call left.

    \b
      txbatch run jobs/word_count.py
      txbatch run jobs/flights.py --interval 2013-01-01T05:00Z 2013-01-02T05:00Z

    The steps are those of a DAG run: initialize, emit, commit, success. With --cron, each interval in turn. Stops at the
    first error; run the same command again to continue there.
    """
    following = Following(follow, since, min_batch, max_latency, delay, cron, timezone)
    following.check([run_id, interval, until_idle])
    if not follow:
        arguments.check_cron(run_id, interval, cron, timezone)
    loaded, where = load_job(job), _where()
    parameters, between = arguments.parameters(loaded, params), arguments.interval(loaded, interval)
    pieces = arguments.pieces(between, cron, timezone or "UTC") if between and cron is not None else None
    reader = Reader(_engine(where))
    with open_runner(loaded, where, master) as runner:
        if follow:
            return reader.batches_by_txid(loaded.topology.name, newest(following.look(runner, parameters)))
        if pieces is None:
            if run_id or between:
                tell_committed(runner.steps, Run(f"{RUN_PREFIX}{run_id}", interval=between))
            batches = runner.run(run_id, between, parameters, until_idle=until_idle)
        else:
            tell_counted(reader, loaded.topology.name, pieces)
            batches = runner.run_each(pieces, parameters)
        with told(loaded.topology.name, len(pieces) if pieces else None, runner.application) as tell:
            of = len(pieces) if pieces else None
            done = [each.txid for each in watched(batches, of, tell, lambda: runner.behind, runner.found)]
    return reader.batches_by_txid(loaded.topology.name, done)


def _show_plan(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if "replaces" in row:
            show_restate(row)
        elif "rebuilds" in row:
            show_rebuild(row)
        else:
            show_plan([row])


@main.command()
@click.argument("job", type=arguments.TEXT)
@click.option("--run-id", type=arguments.TEXT, help="As this run; else as a new one.")
@arguments.interval_option
@arguments.param_option
@click.option(
    "--restate", type=arguments.TXID, help="What counting this txid again would change: read by Spark, not stored."
)
@click.option(
    "--rebuild",
    is_flag=True,
    help="What counting all batches again would change: the newest are read by Spark, not stored.",
)
@click.option(
    "--sample", type=arguments.LIMIT, help=f"As many of the newest batches are read for --rebuild; else {SAMPLE}."
)
@click.option("--all", "everything", is_flag=True, help="All batches are read for --rebuild.")
@click.option(
    "--master",
    type=arguments.MASTER,
    default=LOCAL_MASTER,
    show_default=True,
    help="Spark master of --restate and --rebuild.",
)
@prints_rows(nothing="", show=_show_plan)
def plan(
    job: str,
    run_id: str | None,
    interval: tuple[datetime, datetime] | None,
    params: tuple[tuple[str, Any], ...],
    restate: int | None,
    rebuild: bool,
    sample: int | None,
    everything: bool,
    master: str,
) -> Rows:
    """Say what the job file JOB guarantees, and its next batch.

    Uses no txid, and starts no Spark unless --restate or --rebuild is given. What a run would be refused for is said.
    """
    if (restate is not None or rebuild) and (run_id or interval or params):
        raise click.UsageError("--restate and --rebuild say what is read: leave out --run-id, --interval and --param")
    if (restate is not None) + rebuild > 1 or (not rebuild and (sample or everything)) or (sample and everything):
        raise click.UsageError("give --restate, or --rebuild, and with that --sample or --all")
    loaded = load_job(job)
    if restate is not None:
        return [preview_restate(loaded, _where(), restate, master)]
    if rebuild:
        return [preview_rebuild(loaded, _where(), None if everything else sample or SAMPLE, master)]
    check_emission(loaded)
    between = arguments.interval(loaded, interval)
    name = "plan" if run_id is None else run_id
    run = Run(f"{RUN_PREFIX}{name}", interval=between, parameters=arguments.parameters(loaded, params))
    where = _where()
    for aggregate in loaded.topology.aggregates:
        if aggregate.state.database is not None:
            where.warehouse_url(aggregate.state.database)  # a run is refused without
    engine = _engine(where)
    finishes = RUN_PREFIX if run_id is None else ""
    ledger = PostgresLedger(engine, jobs=jobs_above(engine, loaded.path.parent))
    found = preview(ledger, loaded.topology, run, loaded.name, finishes=finishes)
    found |= kept(engine, loaded.topology)
    found["changed"] = [
        *changed(Reader(engine).counted(loaded.topology.name)),
        *appeared(loaded.topology, found["next"]),
    ]
    return [found]


@main.command()
@click.argument("topology", required=False, type=arguments.TEXT)
@prints_rows(
    *(
        "topology",
        "committed_txid",
        "committed_at",
        "records",
        "in_flight",
        "oldest_in_flight",
        "gaps",
        "aborted",
        "states",
    ),
    nothing=f"no topology has run yet; `txbatch run {EXAMPLE}` runs one",
    show=show_status,
    drop=("aborted", "oldest_in_flight", "gaps", "records"),
    cut=("topology", "states"),
)
def status(topology: str | None) -> Rows:
    """Show each topology: what is committed, in flight, failing, waiting.

    Below the table stands what failed, who waits for whom, and which state in another database is ahead of the ledger.
    """
    where = _where()
    reader = Reader(_engine(where), Warehouses(where.warehouse_url))
    rows = reader.status(topology)
    if topology is not None and not rows:
        raise unknown_topology(topology)
    differ = list(changed(reader.counted(topology)))
    return [
        {
            **row,
            "half_committed": reader.half_committed(row["topology"]),
            "changed": [each for each in differ if each["topology"] == row["topology"]],
        }
        for row in rows
    ]


@main.command()
@click.argument("topology", type=arguments.TEXT)
@click.option("--limit", default=20, show_default=True, type=arguments.LIMIT, help="How many, newest first.")
@click.option("--attempts", is_flag=True, help="Show attempts instead of batches, and why they failed.")
@prints_batches
def batches(topology: str, limit: int, attempts: bool) -> Rows:
    """List the batches of TOPOLOGY, newest first."""
    reader = Reader(_engine())
    if not attempts:
        rows = reader.batches(topology, limit)
        return [{**row, "restates": row["position"] if row["kind"] == "restate" else None} for row in rows]
    return [{**row, "took": row["duration"]} for row in reader.attempts(topology, limit)]


@main.command(context_settings={"ignore_unknown_options": True})  # -1 is a key
@click.argument("state", type=arguments.TEXT)
@click.argument("keys", nargs=-1, type=arguments.KEY)
@prints_rows(nothing="")
def query(state: str, keys: tuple[str, ...]) -> Rows:
    """Look up the values of KEYS in STATE, absent ones included.

    A key of several columns is written as CSV: `txbatch query flights AA,JFK B6,LGA`. A global value has no key: name
    the STATE alone.
    """
    where = _where()
    reader = Reader(_engine(where), Warehouses(where.warehouse_url))
    return reader.query(state, arguments.keys(keys, reader.key_columns(state)))


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("given", nargs=-1, type=click.UNPROCESSED, metavar="[PSQL'S ARGUMENTS]...")
def psql(given: tuple[str, ...]) -> None:
    """Open psql on the reports, read-only.

    Arguments are psql's: -f FILE runs a file, -c a statement. On the embedded PostgreSQL it is the role
    report, which can read the schema report and change nothing; elsewhere the URL's.
    """
    with errors_told():
        line, environment = _psql(_where(), given)
        os.execve(line[0], line, environment)  # noqa: S606 (no shell is meant)


def _psql(where: settings.Settings, given: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    if where.embedded:
        return psql_command(_engine(where), given, role=REPORT)
    engine = _connect(where)
    with transaction(engine) as connection:
        check_server(connection)
    return psql_command(engine, given)


@main.command()
@click.argument("topology", type=arguments.TEXT)
@click.argument("txid", type=arguments.TXID)
@click.option("--why", required=True, type=arguments.WHY, help="Kept with the batch.")
@click.option("--skip", is_flag=True, help="Give its records up, too: no later batch reads them.")
@click.option(
    "--partition", type=arguments.TEXT, help="Give up those of this partition alone; the next batch reads the others."
)
@prints_rows(nothing="")
def abort(topology: str, txid: int, why: str, skip: bool, partition: str | None) -> Rows:
    """Free the records of TOPOLOGY's uncommitted batch TXID."""
    if partition is not None and not skip:
        raise click.UsageError("--partition says which records --skip gives up; give both, or neither")
    where = _where()
    ledger = PostgresLedger(_engine(where), warehouses=Warehouses(where.warehouse_url))
    worker = _at_work(ledger, topology, txid)
    batch = ledger.skip(topology, txid, why, partition) if skip else ledger.abort(topology, txid, why)
    if worker is not None:
        click.echo(
            shown(f"{topology}: {worker} was at work on txid {txid}; it fails, and its next try plans anew"), err=True
        )
    given_up = {"given up by txid": batch.txid if skip else None, **({"partition": partition} if partition else {})}
    return [{"topology": topology, "aborted": txid, **given_up, "why": why}]


def _at_work(ledger: PostgresLedger, topology: str, txid: int) -> str | None:
    """Return the run that looks after an open batch; None where none does."""
    with suppress(UnknownName):  # which `abort` says in its own words
        batch = ledger.batch(topology, txid)
        return batch.lease_run if batch.lease_live and not batch.status.final else None
    return None


@main.command()
@click.argument("topology", type=arguments.TEXT)
@click.option("--yes", is_flag=True, help="Really drop its states, contributions and batches.")
@click.option("--leave-apart", is_flag=True, help="Leave alone what it has in other databases.")
@click.option("--database", type=arguments.TEXT, help="Drop only what it left in this other database.")
@click.option(
    "--ledger", type=arguments.LEDGER, help="With --database: what that ledger left there, which is not this one."
)
@prints_rows("dropped", "states", nothing="")
def drop(topology: str, yes: bool, leave_apart: bool, database: str | None, ledger: str | None) -> Rows:
    """Drop TOPOLOGY with all its states, to count from the start."""
    where = _where()
    warehouses = Warehouses(where.warehouse_url)
    if database is not None:
        return [_drop_in(where, database, topology, ledger, yes)]
    if ledger is not None:
        raise click.UsageError("--ledger is whose states to drop in another database: give --database, too")
    engine = _engine(where)
    known = Reader(engine).status(topology)
    if not known:
        raise unknown_topology(topology)
    _confirm(yes, f"{topology!r} and its states, {', '.join(known[0]['states'])}")
    with transaction(engine) as connection:
        if not leave_apart:
            warehouses.drop(connection, topology)
        dropped = state_tables.drop(connection, topology)
    Staging(where.staging).topology(topology).remove()
    return [{"dropped": topology, "states": dropped}]


def _drop_in(where: settings.Settings, database: str, topology: str, ledger: str | None, yes: bool) -> dict[str, Any]:
    """Drop what a ledger left in another database: this ledger, unless another one is named."""
    warehouses, owner = Warehouses(where.warehouse_url), ledger or identity_of(_engine(where))
    left = {row["ledger"]: row for row in warehouses.owners(database, topology)}
    if owner not in left:
        others = "; ".join(f"--ledger {each}, its last txid is {row['txid']}" for each, row in left.items())
        if ledger is None and others:
            raise click.UsageError(
                f"the states of {topology!r} in {database!r} belong to another ledger; if that is lost for good, say {others}"
            )
        raise UnknownName(f"of topology {topology!r} of ledger {owner} nothing is in {database!r}")
    found = left[owner]
    whose = "" if ledger is None else f" of ledger {owner}"
    _confirm(
        yes,
        f"{topology!r} and its states in {database!r}, {', '.join(found['states'])}{whose}, at txid {found['txid']}",
    )
    return {"dropped": topology, "states": warehouses.drop_in(database, topology, owner)}


def _confirm(yes: bool, what: str) -> None:
    if not yes:
        raise click.UsageError(shown(f"this drops {what}; say --yes if that is meant"))


@main.command()
@prints_rows(nothing="", show=show_checks)
def doctor() -> Rows:
    """Check that everything is there, and loads.

    Database, migrations, rights, states apart, Spark, Airflow, Java, staging area, DAG and job files; exit code 1 if one is
    wrong.
    """
    return check_all()


def _connect(where: settings.Settings) -> Engine:
    return connect(where.database_url)


@main.group()
def demo() -> None:
    """Watch the protocol at work, and look at what a demo counted.

    Demos have a database of their own in the embedded PostgreSQL, whatever TXBATCH_DATABASE_URL says.
    """


main.add_command(ask)
main.add_command(restate)
main.add_command(verify)
main.add_command(gc)
main.add_command(change)
main.add_command(rebuild)
main.add_command(grants)
main.add_command(why)
main.add_command(as_of)
for each in (status, batches, query, psql):
    demo.add_command(each)


@demo.command()
@click.option("--yes", is_flag=True, help="In the database that is set, where a topology demo_outage is dropped first.")
def outage(yes: bool) -> None:
    """One of sixteen partitions is away while a batch is retried, and back three batches later."""
    from txbatch.local.outage import play

    with errors_told():
        for line in play(database.started() if yes else _where()):
            click.echo(line, err=True)


def _where() -> settings.Settings:
    """Return the settings of a command, or the demos' own for one below `txbatch demo`; the database is started."""
    context = click.get_current_context()
    if context.parent is not None and context.parent.command is demo:
        from txbatch.local.databases import demo_settings

        return demo_settings(settings.home())
    return database.started()


def _engine(where: settings.Settings | None = None) -> Engine:
    """A migrated database; the embedded one is migrated by whoever comes first."""
    return database.migrated(where or _where())
