"""The page on settings: variables, connections, fields of a run's form, defaults and limits, read from the code, and Spark's."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import txbatch
from docs.generate.markdown import page, plain, table
from txbatch.settings import DATABASE_URL, HOME, SOURCE, STAGING

ORCHESTRATION = Path(txbatch.__file__).parent / "orchestration"
VARIABLES = (
    (
        DATABASE_URL,
        "the connection `txbatch` in Airflow's tasks; else the embedded PostgreSQL",
        "The ledger: `postgresql+psycopg2://user@host:port/database`",
    ),
    (
        f"{DATABASE_URL}_<NAME>",
        "the connection `txbatch_<name>` in Airflow's tasks",
        'Where states with `database="<name>"` are',
    ),
    (STAGING, "`staging/` in the home folder", "The staging area: a whole path, or a URI that fsspec and Spark read"),
    (
        HOME,
        "`.txbatch/` in the project, [else](../run/install.md#the-home-folder) in your own folder",
        "The home folder of the embedded stack: an absolute path",
    ),
    (
        f"{SOURCE}<NAME>",
        "the connection `txbatch_source_<name>` in Airflow's tasks",
        "The URL of a [source](../spouts.md), by its name in the job",
    ),
    (
        "TXBATCH_SPARK_ENVIRONMENT",
        "none",
        "Names of variables that Spark gets, although they "
        "[look like secrets](../explanation/security.md#what-spark-is-told)",
    ),
    (
        "TXBATCH_FAILPOINTS",
        "none",
        "For tests: points where a process stops, such as `commit.before_commit=kill:/path/once`",
    ),
    ("PGPASSFILE", "libpq's own", "A file with passwords, in place of a password in a URL"),
)
COMPOSE = (
    ("TXBATCH_AIRFLOW_PORT", "8080", "The port of Airflow, on 127.0.0.1"),
    ("TXBATCH_POSTGRES_PORT", "5433", "The port of PostgreSQL, on 127.0.0.1"),
    ("TXBATCH_SPARK_PORT", "8081", "The port of the page of Spark's master, on 127.0.0.1"),
    ("TXBATCH_POSTGRES_IMAGE", "postgres:18-bookworm", "The image of PostgreSQL in a project of `txbatch init`"),
    ("TXBATCH_POSTGRES_LIMIT", "2g", "The memory of PostgreSQL in a project of `txbatch init`"),
    ("TXBATCH_SCHEDULER_LIMIT", "8g", "The memory of scheduler and tasks"),
    ("TXBATCH_WORKER_CORES", "2", "The cores of a Spark worker"),
    ("TXBATCH_WORKER_MEMORY", "1g", "The memory that a Spark worker gives to executors"),
    ("TXBATCH_WORKER_LIMIT", "3g", "The memory of the container of a Spark worker"),
    ("TXBATCH_DATA", "`.txbatch/compose/data`", "The folder with the data of the examples"),
)
CONNECTIONS = (
    ("txbatch", "The ledger, as its writer. Type `txbatch`, with a form of its own"),
    ("txbatch_report", "The ledger, as a reader, for [the pages](../run/pages.md) in Airflow; else `txbatch`"),
    ("txbatch_spark", "Spark's master; without the connection, Spark runs on the worker"),
    ("txbatch_<name>", 'The database of states with `database="<name>"`'),
    ("txbatch_source_<name>", "The source of this name; a variable goes before the connection"),
)
AIRFLOW = (
    (
        "[txbatch] pages_show_values",
        "true",
        "false: pages show no keys and numbers of states. Also the variable `AIRFLOW__TXBATCH__PAGES_SHOW_VALUES`",
    ),
)
OF_VARIABLES = """
A variable goes before a connection, and the connections are for tasks alone. If you use the connection of a source, set the
variable for `txbatch doctor` and `txbatch status`, too. Keep passwords in `PGPASSFILE` or in the connection of Airflow. The
[security model](../explanation/security.md) has what else is guarded.
"""
OF_WAITS = """
The first four are arguments of `topology_dag`, and fields of [the form of a run](#the-form-of-a-run), in minutes and seconds.
Timeouts begin with the first wait of a try, and no retry puts them off. Those for the ledger and for a source begin anew with
the next outage. An outage of the ledger puts off all others. DAGs that verify, rebuild or fold wait six hours for the ledger.
Running and waiting tasks renew their leases.
"""
OF_SPARK = """
Settings of your site decide how fast a batch is counted, and never what is counted. The place of the setting does not
matter: `spark-defaults.conf`, a file that the connection names, or `emit_batch={"conf": ...}`. txbatch has a verdict on
each setting of Spark's SQL, internal ones included (`txbatch/spark/site_settings.tsv`):

| verdict | the value is |
|---|---|
| `free` | that of your site |
| `pinned` | Spark's own default |
| `set` | as txbatch needs it |
| `refused` | rejected: the attempt fails, and names the setting |

- **`free`**: memory, sizes, threads, shuffles, joins, compression, catalogs, listeners, streaming.
- **`pinned`**: all `spark.sql.legacy.*`, rebase modes, `ansi.*`, `caseSensitive`, `mapKeyDedupPolicy`, the rules of the
  optimizer, and all settings without proof that values stay the same. The driver's output names each: *Spark's setting
  spark.sql.legacy.timeParserPolicy is LEGACY here and does not count*.
- **`set`**: `spark.sql.ansi.enabled`, the time zone UTC, no files that are missing or corrupt.
- **`refused`**: settings that work only before Spark runs. These are `spark.sql.extensions`, another
  `spark.sql.catalogImplementation`, `spark.sql.reflect.allowList`, and a `pathFilter` of Hadoop. In `emit_batch`, they
  are refused when the DAG file is parsed. To say that a job has no extensions, write
  `emit_batch={"conf": {"spark.sql.extensions": ""}}`.

A setting that only a newer Spark has is refused by name. A `transform` or an emitter of your own may set what it likes,
for its attempt.
"""


class Told(NamedTuple):
    """A number of the code: where the number stands, its unit, and its meaning."""

    where: str
    unit: str
    meaning: str


WAITS = (
    Told("orchestration.dag:TURN_TIMEOUT", "", "`turn_timeout`: the longest wait for the batches before the run's own"),
    Told("orchestration.dag:READY_TIMEOUT", "", "`ready_timeout`: the longest wait for a source that is not ready"),
    Told("orchestration.dag:ASK_AGAIN", "", "`ask_again`: the pause until such a source is asked again"),
    Told(
        "orchestration.waiting:LEDGER_TIMEOUT",
        "",
        "`ledger_timeout`: the longest wait for a ledger or source that is away",
    ),
    Told("orchestration.waiting:LIMIT", "", "The longest wait that a form can ask for"),
    Told(
        "orchestration.airflow:AIRFLOW_LEASE_SECONDS",
        "s",
        "The lease of a batch between two tasks: then another run adopts the batch",
    ),
    Told("postgres.ledger:CLI_LEASE_SECONDS", "s", "The lease of a batch of `txbatch run`"),
    Told("run.lease:_RENEW_SECONDS_MAX", "s", "The longest time between two renewals of a lease"),
    Told("postgres.tables.batch_lock:PATIENCE_SECONDS", "s", "A commit that stands still for so long may be ended"),
    Told("postgres.tables.batch_lock:WAIT_SECONDS", "s", "The longest wait for the row of a batch"),
    Told("run.rebuild:PATIENCE_SECONDS", "s", "How long a rebuild tries its swap while readers are at work"),
    Told("cli.follow:LATENCY_SECONDS", "s", "`--max-latency` of `txbatch follow`"),
    Told("run.follow:PAUSE_SECONDS_MAX", "s", "The longest pause of `txbatch follow` after an outage"),
    Told("ui.reader:SECONDS_MAX", "s", "The longest query of a page in Airflow"),
    Told("storage.leftovers:UNTOUCHED", "", "A staging folder without a change for so long is left over"),
)
LIMITS = (
    Told("core.state.state:STATE_NAME_BYTES_MAX", "bytes", "The name of a state"),
    Told("core.records.fields:NAME_BYTES_MAX", "bytes", "The name of a field, a key or a value"),
    Told("core.records.fields:_KEY_BYTES_MAX", "bytes", "All keys of a row together"),
    Told("core.sources.partition_checks:PARTITION_BYTES_MAX", "bytes", "The name of a partition"),
    Told("core.stored_json:METADATA_BYTES_MAX", "bytes", "The plan of a spout"),
    Told("core.batch.transaction:STORED_BYTES_MAX", "bytes", "A manifest, and any other JSON in the ledger"),
    Told(
        "core.batch.transaction:INTERVALS_MAX", "intervals", "The intervals of one `--cron`, or of Catch up in a form"
    ),
    Told("formats.contents:RECORD_BYTES_MAX", "bytes", "A record of a CSV, JSON or text file"),
    Told("formats.changes:LOOKS_MAX", "files", "Files that are compared with what was counted, in one call"),
    Told("core.windows.window:SLIDES_MAX", "windows", "The windows in which one record counts"),
    Told("core.aggregates.merge:DECIMAL_DIGITS_MAX", "digits", "The digits of a decimal"),
    Told("core.aggregates.collect_set:SIZE_MAX", "values", "`size=` of `CollectSet` and `TopN`"),
    Told("core.aggregates.counting:BINS_MAX", "bins", "The bins of a `Histogram`"),
    Told("core.aggregates.top_n_by:ROW_BYTES_MAX", "bytes", "A row of `TopNBy`"),
    Told("core.state.keep:DAYS_MAX", "days", "`Keep(days=)`"),
    Told(
        "core.topology.quarantine:ERROR_CHARACTERS_MAX",
        "characters",
        "The error of a record in quarantine; more is cut",
    ),
    Told(
        "core.topology.quarantine:DATA_CHARACTERS_MAX", "characters", "The data of a record in quarantine; more is cut"
    ),
    Told("core.text:WHY_MAX", "characters", "A reason: `--why`, and Why of a form"),
    Told("core.text:LENGTH_MAX", "characters", "An error, a note, a name in a message; more is cut"),
    Told("core.text:RECORD_MAX", "characters", "A record within an error; more is cut"),
    Told("core.protocol.bulk:BATCHES_MAX", "batches", "The batches that one job of Spark emits together"),
    Told("core.protocol.bulk:BATCHES_FIRST", "batches", "The batches of the first train of a call"),
    Told("core.protocol.bulk:BYTES_MAX", "bytes", "The planned bytes of batches that are emitted together"),
    Told("core.protocol.bulk:PARTIALS_BYTES_MAX", "bytes", "The partials of batches that are emitted together"),
    Told("core.protocol.bulk:ROWS_MAX", "rows", "The rows of partials of one state that reach the driver at once"),
    Told(
        "core.protocol.lookback:NEWEST",
        "intervals",
        "Intervals that are looked at for late records, without `lookback=`",
    ),
    Told("core.protocol.lookback:INTERVALS_MAX", "intervals", "Intervals that are looked at within a `lookback=`"),
    Told("core.protocol.lookback:FOUND_MAX", "intervals", "Late intervals that one run counts again"),
    Told(
        "core.corrections.verify:EXAMPLES_MAX",
        "keys",
        "Differing keys that `txbatch verify` shows for a batch or a state",
    ),
    Told("cli.reading.why:LIMIT", "rows", "Rows that `txbatch why` prints"),
    Told("cli.reading.as_of:LIMIT", "rows", "Rows that `txbatch as-of` prints"),
    Told("ui.asked:DAYS_MAX", "days", "The days of a page on completeness"),
)
DEFAULTS = (
    "Topology",
    "FileSpout",
    "IntervalSpout",
    "PartitionedLogSpout",
    "KafkaSpout",
    "PostgresSpout",
    "ApproxQuantile",
)


def settings() -> str:
    """Return the page."""
    return page(
        "Settings, defaults and limits",
        "Here you find each variable, connection, form field, default and limit, and which settings of Spark count.",
        "You need nothing. A variable that is set and empty is an error. Keep passwords out of URLs on a command line.",
        [*_named(), "## The form of a run", "", *_form(), *_numbers(), *_of_classes(), *_of_spark()],
    )


def _named() -> Iterator[str]:
    yield from ("## Environment", "")
    yield from table(("variable", "default", "meaning"), [(f"`{name}`", *more) for name, *more in VARIABLES])
    yield from (OF_VARIABLES.strip(), "", "Of docker-compose alone:", "")
    yield from table(("variable", "default", "meaning"), [(f"`{name}`", *more) for name, *more in COMPOSE])
    yield from ("## Connections of Airflow", "")
    yield from table(("connection", "meaning"), [(f"`{name}`", meaning) for name, meaning in CONNECTIONS])
    yield from ("## airflow.cfg", "")
    yield from table(("setting", "default", "meaning"), [(f"`{name}`", *more) for name, *more in AIRFLOW])


def _form() -> Iterator[str]:
    yield from ("A spout's own parameters and the DAG's own `params` come first, by their own names.", "")
    yield from table(
        ("field", "title", "meaning"), [(f"`{name}`", title, plain(said)) for name, title, said in form_fields()]
    )


def _numbers() -> Iterator[str]:
    for title, told in (("Waits and leases", WAITS), ("Limits", LIMITS)):
        yield from (f"## {title}", "")
        rows = [(plain(each.meaning), amount(value_of(each.where), each.unit)) for each in told]
        yield from table(("what", "default" if told is WAITS else "at most"), rows)
        yield from (OF_WAITS.strip(), "") if told is WAITS else ()


def _of_classes() -> Iterator[str]:
    yield from ("## Defaults of jobs", "", "Each argument with a default, of the classes that read and keep most.", "")
    rows = [
        (f"`{name}`", f"`{each.name}`", f"`{each.default!r}`")
        for name in DEFAULTS
        for each in signature(getattr(txbatch, name)).parameters.values()
        if each.default is not each.empty and not repr(each.default).startswith("<")
    ]
    yield from table(("class", "argument", "default"), rows)


def _of_spark() -> Iterator[str]:
    yield from ("## Settings of Spark", "", OF_SPARK.strip(), "")


def value_of(where: str) -> Any:
    """Return the value of a constant by `module:NAME`; of Airflow's room by its source, because its import takes seconds."""
    module, _, name = where.partition(":")
    if module.startswith("orchestration."):
        return _of_source(constants()[name])
    return getattr(import_module(f"txbatch.{module}"), name)


def _of_source(text: str) -> Any:
    node = ast.parse(text, mode="eval").body
    if isinstance(node, ast.Call):
        return timedelta(**{str(each.arg): ast.literal_eval(each.value) for each in node.keywords})
    return ast.literal_eval(node)


def amount(value: Any, unit: str) -> str:
    """Return a number with its unit.

    >>> amount(64_000_000, "bytes"), amount(2048, "bytes"), amount(timedelta(hours=6), ""), amount(30.0, "s")
    ('64 MB', '2,048 bytes', '6 h', '30 s')
    """
    if isinstance(value, timedelta):
        hours = value / timedelta(hours=1)
        return f"{hours:g} h" if 1 <= hours < 48 else f"{hours / 24:,g} days" if hours >= 48 else f"{hours * 60:g} min"
    if unit == "bytes" and value >= 1_000_000 and value % 1_000_000 == 0:
        return f"{value // 1_000_000:,} MB"
    return f"{value:,g} {unit}" if isinstance(value, float) else f"{value:,} {unit}"


def constants() -> dict[str, str]:
    """Return the source of the value of each constant in Airflow's room."""
    found: dict[str, str] = {}
    for file in sorted(ORCHESTRATION.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign):
                found |= _assigned(node)
    return found


def _assigned(node: ast.Assign) -> dict[str, str]:
    """Return the names of an assignment with the source of their values, also of several names at once."""
    (target,) = node.targets[:1]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = zip(target.elts, node.value.elts, strict=True)
    else:
        pairs = zip([target], [node.value], strict=True)
    return {ast.unparse(name): ast.unparse(value) for name, value in pairs}


def form_fields() -> list[tuple[str, str, str]]:
    """Return name, title and meaning of each field of a run's form, as the source has them; the waits come last."""
    named = constants()
    files = sorted(ORCHESTRATION.rglob("*.py"), key=lambda file: (file.stem == "dag", str(file)))
    return [
        field
        for file in files
        for function in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(function, ast.FunctionDef) and function.name in ("params", "_waits")
        for field in _fields(function, named)
    ]


def _fields(function: ast.FunctionDef, named: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for node in _in_order(function):
        said = _said_before(function, node.lineno)
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Name) and isinstance(value, ast.Call):
                title, meaning = _told(value)
                yield ast.literal_eval(named[key.id]), _text(title, said), _text(meaning, said)


def _said_before(function: ast.FunctionDef, line: int) -> dict[str, str]:
    """Return the sources of what a function assigns before a line; a later assignment of a name goes before an earlier one."""
    assigned = [each for each in ast.walk(function) if isinstance(each, ast.Assign) and each.lineno < line]
    found: dict[str, str] = {}
    for each in sorted(assigned, key=lambda one: one.lineno):
        found |= _assigned(each)
    return found


def _in_order(function: ast.FunctionDef) -> list[ast.Dict]:
    return sorted((each for each in ast.walk(function) if isinstance(each, ast.Dict)), key=lambda each: each.lineno)


def _told(call: ast.Call) -> tuple[ast.expr, ast.expr]:
    """Return title and description of a call of Param, or of the helper of the DAG, which takes both by their places."""
    by_name = {each.arg: each.value for each in call.keywords}
    if "title" in by_name:
        return by_name["title"], by_name["description"]
    return call.args[2], call.args[3]


def _text(node: ast.expr, said: Mapping[str, str]) -> str:
    """Return a text, or the text that a name stands for."""
    return str(ast.literal_eval(said[node.id] if isinstance(node, ast.Name) else node))
