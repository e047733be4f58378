"""More than a thousand bad inputs: each ends with exit code 1 or 2 and a printable, short word of why, and changes nothing.

The inputs are the lists of `bad_inputs`. They run in this process, on one database with a topology that has history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import bad_inputs as bad
import pytest
from cli_support import contents, job_of
from click.testing import CliRunner, Result
from sizes import some_of
from sqlalchemy import Engine
from without_spark import WithoutSpark

from txbatch import settings
from txbatch.cli.main import main
from txbatch.core.errors import TxbatchError
from txbatch.core.text import LENGTH_MAX
from txbatch.launch.job_file import load_job
from txbatch.storage.staging import AttemptFolder
from txbatch.wiring import open_steps

pytestmark = pytest.mark.timeout(600)
DAY = ("2013-01-01T00:00:00Z", "2013-01-02T00:00:00Z")
Command = tuple[str, ...]
Try = Callable[[Iterable[Command]], int]
tried: list[int] = []
# Of the types of a key: a text goes to the database as it is, a number may be too large, a time has most spellings.
KEYS = [
    type_ if type_ in ("string", "smallint", "timestamp") else pytest.param(type_, marks=pytest.mark.whole)
    for type_ in bad.KEY_TYPES
]


@pytest.fixture
def ledger(home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A job with two committed batches on a fresh database; nobody starts Spark."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setattr("txbatch.wiring.Application", WithoutSpark)
    monkeypatch.chdir(tmp_path)
    job = tmp_path / "words.py"
    job.write_text("from txbatch import *\n" + job_of("words", "words"))
    assert call("run", str(job), "--until-idle").exit_code == 0
    monkeypatch.setattr("txbatch.wiring.Application", None)  # what is refused comes nowhere near it
    return str(job)


@pytest.fixture
def refused(ledger: str, engine: Engine) -> Iterator[Try]:
    """Tries commands, all of which have to be refused with nothing changed; how many they were."""
    before, count = contents(engine), 0

    def each(commands: Iterable[Command]) -> int:
        nonlocal count
        wrong = []
        for command in commands:
            count += 1
            why = complaint(call(*command))
            if why:
                wrong.append((tuple(part[:80] for part in command), why))
        assert not wrong, "\n".join(map(str, wrong))
        return count

    yield each
    assert contents(engine) == before
    tried.append(count)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="txbatch")


def complaint(result: Result, codes: tuple[int, ...] = (1, 2)) -> str | None:
    """What is wrong with how a command was refused."""
    if not isinstance(result.exception, SystemExit | None):
        return f"raised {result.exception!r}"[:300]
    if result.exit_code not in codes:
        return f"exit code {result.exit_code}: {result.output[:200]!r}"
    if "Traceback" in result.output or "`txbatch -v` shows where" in result.output:
        return f"not told in our words: {result.stderr[:300]!r}"
    lines = result.stderr.splitlines()
    if result.exit_code == 1 and sum(line.startswith("txbatch: ") for line in lines) != 1:
        return f"not one line: {result.stderr[:300]!r}"
    if not all(line.isprintable() and len(line) <= LENGTH_MAX + 100 for line in lines):
        return f"not printable, or long: {result.stderr[:300]!r}"
    return "shows the password" if "geheim" in result.output else None


# ---- commands


def test_names_of_nothing(refused: Try) -> None:
    names = [name for name in bad.TEXTS if name not in ("words", "--help")]
    step = some_of(3, 1)  # each command has each name, or every third one, in turn
    found = refused(
        command
        for number, name in enumerate(names)
        for command in (
            ("status", "--", name),
            ("batches", "--", name),
            ("abort", "--why", "x", "--", name, "3"),
            ("drop", "--yes", "--", name),
            ("query", "--", name, "a"),
        )[number % step :: step]
    )
    assert found >= 450 // step


def test_names_that_look_like_options(refused: Try) -> None:
    names = [name for name in bad.TEXTS if name.startswith("-") and name != "--"]
    refused(
        (command, name)
        for name in [*names, "--nosuch", "-1", "--conf", "-rf"]
        for command in ("status", "batches", "drop")
    )


def test_values_of_options(refused: Try, ledger: str) -> None:
    day = ("--interval", *DAY)
    found = refused(
        [
            *(("batches", "words", "--limit", each) for each in bad.NUMBERS),
            *(("abort", "words", each, "--why", "x") for each in [*bad.NUMBERS, "1", "2", "3"]),
            *(("abort", "words", "3", "--why", each) for each in bad.EMPTY),
            *(("run", ledger, "--interval", each, DAY[1]) for each in bad.MOMENTS),
            *(("run", ledger, "--interval", DAY[0], each) for each in bad.MOMENTS),
            *(("plan", ledger, "--interval", each, each) for each in [*bad.MOMENTS, *DAY]),
            *(("run", ledger, *day, "--cron", each) for each in bad.CRONS),
            *(("run", ledger, *day, "--cron", "0 0 * * *", "--timezone", each) for each in bad.ZONES),
            *(("run", ledger, *day, "--timezone", each) for each in bad.ZONES),
            *(("run", ledger, "--cron", each) for each in bad.CRONS),
            *(("run", ledger, "--run-id", each) for each in [*bad.EMPTY, "\0", "\udcff"]),
            *(("plan", ledger, "--run-id", each) for each in [*bad.EMPTY, "\0", "\udcff"]),
            *(("run", ledger, "--master", each) for each in bad.MASTERS),
            *(("run", ledger, "--param", each) for each in bad.PARAMETERS),
            *(("plan", ledger, "--param", each) for each in bad.PARAMETERS),
            *(("drop", "words", "--yes", "--ledger", each) for each in bad.UUIDS),
            *(("drop", "words", "--yes", "--database", each) for each in bad.TEXTS),
            ("run", ledger, "--cron", "* * * * *", "--interval", "1000-01-01T00:00:00Z", "2000-01-01T00:00:00Z"),
            ("run", ledger, "--cron", "* * * * *", "--interval", "9999-12-31T00:00:00Z", "9999-12-31T23:59:00Z"),
            ("drop", "words"),
            ("drop", "words", "--database", "warehouse", "--ledger", "00000000-0000-0000-0000-000000000000", "--yes"),
        ]
    )
    assert found >= 350


@pytest.mark.parametrize("type_", KEYS)
def test_keys(type_: str, ledger: str, engine: Engine, tmp_path: Path) -> None:
    """A key that is not there is told as absent, one that is none of the column's type is refused."""
    job = tmp_path / "typed.py"
    job.write_text(
        "from txbatch import *\ntopology = Topology('typed')\n"
        f"stream = topology.new_stream('in', FixedBatchSpout('word {type_}', 1, 'a'))\n"
        "stream.group_by('word').persistent_aggregate(OpaqueState('typed'), count=Count())\n"
    )
    loaded = load_job(str(job))
    open_steps(loaded, settings.resolve()).ledger.register(loaded.topology, "typed.py")
    before, count = contents(engine), 0
    for key in [*bad.TEXTS, *bad.NUMBERS, *bad.MOMENTS]:
        count += 1
        assert complaint(call("query", "--", "typed", key), (0, 1, 2)) is None, key[:80]
    assert contents(engine) == before
    tried.append(count)


# ---- job files


def test_paths_that_are_no_job(refused: Try) -> None:
    refused((command, "--", path) for path in bad.PATHS for command in ("run", "plan"))


@pytest.mark.parametrize("command", ["run", "plan"])
def test_job_files(refused: Try, tmp_path: Path, command: str) -> None:
    texts = [*bad.JOBS, *(bad.WORDS + f"topology = {each}\n" for each in bad.DEFINITIONS)]

    def written() -> Iterator[Command]:
        for number, each in enumerate(texts):
            job = tmp_path / f"bad_{number}.py"
            job.write_bytes(
                ("from txbatch import *\nfrom txbatch.core.errors import *\n" + each).encode(errors="surrogatepass")
            )
            yield command, str(job)

    assert refused(written()) >= 100


# ---- settings


def test_urls(refused: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [
        *("postgresql://" + each for each in bad.URLS),
        *("postgresql+psycopg2://" + each for each in bad.URLS),
        *(each + "u:geheim@127.0.0.1:1/db" for each in bad.SCHEMES),
        *bad.EMPTY,
    ]

    def tries() -> Iterator[Command]:
        for url in urls:
            if "\0" in url:
                continue
            monkeypatch.setenv("TXBATCH_DATABASE_URL", url)
            yield ("status",)
            yield ("psql", "-c", "select 1")

    with monkeypatch.context() as inside:
        inside.setattr("txbatch.cli.reading.psql.os.execve", None)
        found = refused(tries())
    assert found >= 150


@pytest.mark.parametrize("name", ["TXBATCH_DATABASE_URL", "TXBATCH_STAGING", "TXBATCH_HOME"])
def test_settings_that_are_empty(refused: Try, ledger: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def tries() -> Iterator[Command]:
        for value in [*bad.EMPTY, "\udcff"]:
            monkeypatch.setenv(name, value)
            yield from (("status",), ("run", ledger), ("query", "words", "a"), ("drop", "words", "--yes"))

    refused(tries())


def test_homes_and_staging_areas_that_cannot_be(
    refused: Try, ledger: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def tries() -> Iterator[Command]:
        for name in bad.HOMES:
            monkeypatch.setenv("TXBATCH_HOME", f"{tmp_path}/{name}")
            yield from (("status",), ("run", ledger))
        monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
        for uri in ("/", "///", "file:///", "file://", "s3://"):
            monkeypatch.setenv("TXBATCH_STAGING", uri)
            yield "run", ledger

    refused(tries())


# ---- what lies in the staging area


def test_files_of_the_staging_area(tmp_path: Path) -> None:
    """What cannot be read is an error of ours, or says nothing; nothing else is raised."""
    folder, count = AttemptFolder(tmp_path.as_uri()), 0
    for name, read in {
        "manifest.json": folder.read_manifest,
        "fence.json": folder.read_heartbeat,
        "error.json": folder.read_error,
    }.items():
        for content in bad.STAGED:
            count += 1
            (tmp_path / name).write_bytes(content)
            with suppress(TxbatchError):
                found = read()
                assert name != "manifest.json", (content[:80], found)
        (tmp_path / name).unlink()
    tried.append(count)


def test_they_were_more_than_a_thousand() -> None:
    """Last: what the tests above have tried, when all of them ran."""
    if len(tried) >= 15:
        assert sum(tried) >= 1_000
