"""Whoever may change one column of the database falsifies no number that `txbatch verify` would not notice (R24)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_support import DAYS, MAIN, WORDS_OF_LOG
from click.testing import CliRunner
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from without_spark import LikeTheDriver

from txbatch import settings
from txbatch.cli.main import main
from txbatch.core.errors import TxbatchError
from txbatch.launch.job_file import load_job
from txbatch.postgres.corrections.retention import Retention
from txbatch.postgres.database.engine import connect
from txbatch.run.verify import Asked
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.wiring import open_application, open_runner, open_steps, open_verifier

pytestmark = pytest.mark.rule("R24")
INTERVALS = (("2024-01-01", "2024-01-02"), ("2024-01-02", "2024-01-03"))
# A column, how it is changed, and in which row: what is found then says this, or PostgreSQL refuses it.
REFUSED = "refused"
WORDS, RESTATED, ROW = "topology = 'words' AND txid = 3", "topology = 'words' AND txid = 2", "line = 'a'"
CASES = {
    "txbatch.topology": (
        "topology = 'words'",
        {
            "topology": ("topology || 'x'", "state 'words' belongs to topology 'wordsx'"),
            "source": ("'{}'", "is defined otherwise now"),
            "streams": ("replace(streams::text, 'string', 'bigint')::json", "is defined otherwise now"),
            "watermarks": (
                '\'{"words": {"time": "at", "delay": 1, "late": "merge"}}\'',
                "is defined otherwise now",
            ),
        },
    ),
    "txbatch.state": (
        "state = 'words'",
        {
            "state": ("'other'", "state"),
            "topology": ("'days'", "days"),
            "kind": ("'transactional'", "is defined otherwise now"),
            "contributions": ("false", "is defined otherwise now"),
            "columns": ("replace(columns::text, 'bigint', 'int')::json", "is defined otherwise now"),
            "streams": ("'[\"other\"]'", "is defined otherwise now"),
            "horizon": ("3", "txbatch.state.horizon"),
            "values_since": ("'{\"count\": 5}'", "counting from txid 5 on to "),
            "joined": ("5", "txbatch.state.joined"),
            "database": ("'other'", REFUSED),
            "applied_txid": ("1", REFUSED),
        },
    ),
    "txbatch.batch": (
        WORDS,
        {
            "topology": ("'days'", "which is not committed"),
            "txid": ("99", REFUSED),
            "position": ("2", REFUSED),
            "kind": ("'restate'", "is no batch of its own"),
            "status": ("'planned'", REFUSED),
            "data_interval": ("'[2024-01-01, 2024-01-02)'", "txbatch.batch.data_interval"),
            "metadata": ("replace(metadata::text, '5', '4')::json", "txbatch.batch.metadata"),
            "fence": ("fence + 1", REFUSED),
            "committed_at": ("committed_at - interval '1 day'", "txbatch.batch.committed_at"),
            "committed_fence": ("7", REFUSED),
            "records": ("records + 1", "txbatch.batch.records is 5, its partitions have 4 records"),
            "keys": ("'{\"words\": 7}'", "txbatch.batch.keys says 7"),
            "kept": ("'{\"words\": 7}'", "txbatch.batch.kept"),
            "late": ("'{\"words\": 7}'", "txbatch.batch.late of state 'words' is 7"),
            "ahead": ("7", "txbatch.batch.ahead is 7 up to None, its attempt's manifest says none"),
            "ahead_to": ("7", "txbatch.batch.ahead is none up to 7"),
            "replaced_by": ("5", "txbatch.batch.replaced_by"),
            "token": ("NULL", REFUSED),
            "aborted_at": ("now()", REFUSED),
            "abandoned": ("true", REFUSED),
        },
    ),
    "txbatch.batch ": (
        RESTATED,
        {
            "replaced_by": ("NULL", "txbatch.batch.replaced_by"),
            "records": ("9", "txbatch.batch.records"),
            "committed_at": ("committed_at + interval '1 day'", "txbatch.batch.committed_at"),
            "metadata": ("regexp_replace(metadata::text, '(start\": *)2', '\\11')::json", "txbatch.batch.metadata"),
        },
    ),
    "txbatch.batch  ": (
        "topology = 'words' AND kind = 'restate'",
        {
            "position": ("1", "txbatch.batch.replaced_by"),
            "kind": ("'ordinary'", REFUSED),
            "records": ("9", "txbatch.batch.records"),
        },
    ),
    "txbatch.batch   ": (
        "topology = 'words' AND kind = 'skip'",
        {
            "metadata": ("replace(metadata::text, '6', '5')::json", "metadata is not what the batch planned"),
            "kind": ("'ordinary'", REFUSED),
        },
    ),
    "txbatch.batch     ": (
        "topology = 'words' AND txid = (SELECT max(txid) FROM txbatch.batch"
        " WHERE topology = 'words' AND status = 'committed' AND kind <> 'skip')",
        {"records_to": ("records_to + 1", "txbatch.batch.records_to")},
    ),
    "txbatch.batch    ": (
        "topology = 'days' AND txid = 1",
        {
            "data_interval": ("'[2024-01-01, 2024-01-03)'", "txbatch.batch.data_interval"),
            "keys": ("'{\"days\": 7}'", "txbatch.batch.keys of state 'days' is 7"),
            "kept": ("'{\"days\": 7}'", "txbatch.batch.kept"),
            "records": ("records + 1", "txbatch.rebuilt says"),
        },
    ),
    "txbatch.attempt": (
        WORDS,
        {
            "topology": ("'days'", REFUSED),
            "txid": ("4", REFUSED),
            "manifest": ("regexp_replace(manifest::text, '(records\": *)2', '\\13')::json", "txbatch.partition"),
            "finished_at": ("finished_at + interval '1 day'", "txbatch.attempt.finished_at"),
        },
    ),
    "txbatch.partition": (
        f"{WORDS} AND partition = '0'",
        {
            "topology": ("'days'", REFUSED),
            "stream": ("'other'", "it was planned"),
            "partition": ("'other'", "it was planned"),
            "txid": ("1", REFUSED),
            "status": ("'skipped'", REFUSED),
            "metadata": ("replace(metadata::text, '5', '4')::json", "metadata is not what the batch planned"),
            "records": ("records + 1", "it says read, 3 records"),
            "fingerprint": ("fingerprint + 1", "it says read, 2 records"),
        },
    ),
    "txbatch.partition ": (
        "topology = 'words' AND status = 'unreadable' AND txid = 5",
        {
            "status": ("'skipped'", "it says skipped, and what was told at the time is unreadable"),
        },
    ),
    "txbatch.consumed": (
        "topology = 'words' AND partition = '0'",
        {
            "topology": ("'days'", "txbatch.consumed"),
            "stream": ("'other'", "txbatch.consumed"),
            "partition": ("'other'", "txbatch.consumed"),
            "txid": ("1", "txbatch.consumed"),
            "metadata": ("replace(metadata::text, '7', '9')::json", "txbatch.consumed"),
        },
    ),
    "txbatch.counted": (
        "topology = 'days'",
        {
            "topology": ("'words'", "txbatch.counted"),
            "starts": ("starts + interval '1 hour'", "txbatch.counted"),
            "ends": ("ends - interval '1 hour'", "txbatch.counted"),
        },
    ),
    "txbatch.rebuild": (
        "topology = 'days'",
        {
            "status": ("'running'", REFUSED),
            "swapped_txid": ("swapped_txid - 1", "txbatch.rebuild.swapped_txid"),
        },
    ),
    "txbatch.rebuilt": (
        "txid = 1",
        {
            "txid": ("7", "txbatch.rebuilt"),
            "keys": ("'{\"days\": 7}'", "txbatch.rebuilt says 7"),
            "kept": ("'{\"days\": 7}'", "txbatch.rebuilt says 7"),
            "records": ("records + 1", "txbatch.rebuilt.records"),
            "metadata": ("replace(metadata::text, '2024-01-01T', '2024-01-02T')::json", ""),
            "streams": ("regexp_replace(streams::text, '(records\": *)1', '\\12')::json", "txbatch.rebuilt.records"),
        },
    ),
    "state.words": (
        ROW,
        {
            "line": ("'zz'", "differs from its contributions"),
            "count": ("count + 1", "differs from its contributions"),
            "last": ("7", "differs from its contributions"),
            "txid": ("txid - 1", "differs from its contributions"),
        },
    ),
    "state.days": (
        "name = 'a'",
        {
            "name": ("'zz'", "differs from its contributions"),
            "count": ("count + 1", "differs from its contributions"),
            "txid": ("txid + 1", "differs from its contributions"),
        },
    ),
    "contribution.words": (
        f"txid = 3 AND {ROW}",
        {
            "line": ("'zz'", ""),
            "position": ("2", "at position 2, which stands for 3"),
            "txid": ("4", ""),
            "count": ("count + 1", ""),
            "last": ("7", ""),
        },
    ),
    "contribution.words ": (
        f"txid = 2 AND {ROW}",
        {
            "count": ("count + 1", "whose total of 'count' is"),
            "last": ("NULL", "whose total of 'last' is"),
            "position": ("3", "at position 3, which stands for 2"),
            "txid": ("5", ""),
        },
    ),
    "contribution_base.words": (
        ROW,
        {
            "line": ("'zz'", "differs from its contributions"),
            "count": ("count + 1", "differs from its contributions"),
            "last": ("77", "differs from its contributions"),
            "txid": ("2", "contribution_base.words has txid 2"),
        },
    ),
}
NO_NUMBER = "it tells of who, when, where and why, and no number follows from it"
READ_IN_FLIGHT = "only a batch in flight is led by it, and what that counts is verified"
TO_COME = "it holds watermarks of plans to come: no value of a state follows from it"
HANDED_ON = (
    "no value of its own topology follows from it, and one that reads closed windows reads them again to be verified"
)
# Columns that may be changed without a falsified number, and why.
HARMLESS = {
    **dict.fromkeys(("txbatch.topology.job", "txbatch.topology.zone", "txbatch.topology.created_at"), NO_NUMBER),
    **dict.fromkeys(("txbatch.topology.by_interval", "txbatch.topology.keep"), "the job says it"),
    "txbatch.topology.digest": "if it differs, the parts of the definition are compared; a text that fits is a hash of the job",
    **dict.fromkeys(
        (f"txbatch.missing.{n}" for n in ("topology", "stream", "partition", "since")), "it is a view of the plans"
    ),
    "txbatch.state.left_in": "a copy there counts for nothing, whether it is told or not",
    "txbatch.state.pruned": "of rows that retention pruned nothing is there to compare it with",
    "txbatch.rebuild.topology": "asked as of before it, a state has what its generation counts now, which is verified",
    "txbatch.batch.key": READ_IN_FLIGHT,
    **dict.fromkeys(("txbatch.batch.prev_txid", "txbatch.batch.found_by"), READ_IN_FLIGHT),
    **dict.fromkeys(("txbatch.batch.watermark", "txbatch.consumed.latest"), TO_COME),
    **dict.fromkeys(("txbatch.batch.closed_to", "txbatch.batch.closed"), HANDED_ON),
    "txbatch.rebuilt.late": "what was counted is in the manifests and in the plans, of which it is only told",
    "txbatch.batch.came_late": "what came late is not counted, and verify finds it by reading each interval as it is now",
    **dict.fromkeys((f"txbatch.behind.{name}" for name in ("topology", "stream", "partition", "txid")), TO_COME),
    **dict.fromkeys((f"txbatch.batch.{name}" for name in ("lease_run", "lease_until")), READ_IN_FLIGHT),
    **dict.fromkeys(
        (f"txbatch.batch.{n}" for n in ("created_at", "succeeded_at", "reason", "requested_by")), NO_NUMBER
    ),
    **dict.fromkeys((f"txbatch.attempt.{n}" for n in ("attempt_id", "token", "status")), READ_IN_FLIGHT),
    **dict.fromkeys((f"txbatch.attempt.{n}" for n in ("run", "code", "error", "started_at")), NO_NUMBER),
    "txbatch.partition.reason": NO_NUMBER,
    **dict.fromkeys(
        (
            f"txbatch.windows_left.{n}"
            for n in ("state", "kept", "left_before", "txid", "windows", "records", "left_at")
        ),
        "of windows that have left nothing is there to compare it with; what is there is not read from it",
    ),
    **dict.fromkeys(
        (f"txbatch.rebuild.{n}" for n in ("rebuild", "why", "requested_by", "job", "code", "definition", "started_at")),
        NO_NUMBER,
    ),
    **dict.fromkeys((f"txbatch.rebuild.{n}" for n in ("ended_at", "dropped_at", "past")), NO_NUMBER),
    **dict.fromkeys(
        (f"txbatch.rebuilt.{n}" for n in ("rebuild", "position", "counted_at", "counted_in")), READ_IN_FLIGHT
    ),
    "state.words.prev_count": "what a key was before is read only where a state apart takes back a batch in flight",
    "state.words.prev_last": "as prev_count",
    "state.words.prev_txid": "as prev_count",
}
# Tables that no number is in or follows from.
OTHERS = {"migration", "ledger", "batch_key", "counting", "waiting", "running", "change"}


@dataclass(frozen=True)
class Story:
    """Two topologies: of `words` a batch is folded, one restated, one holed, one given up; `days` was rebuilt."""

    engine: Engine
    jobs: tuple[str, ...]

    def told(self) -> list[str]:
        """What verify tells of both that is not well, or what it refuses with."""
        found: list[str] = []
        for job in map(load_job, self.jobs):
            where = settings.resolve()
            verifier = open_verifier(open_steps(job, where), open_application(job, where))
            try:
                found += [f"{each.name} {each.reason}" for each in verifier.verify(Asked()) if not each.ok]
            except TxbatchError as error:
                found.append(str(error))
        return [each for each in found if not each.startswith("missing")]


@pytest.fixture(scope="module")
def story(
    postgres_server: str, new_database: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    folder, url = tmp_path_factory.mktemp("falsified"), new_database("migrated")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TXBATCH_HOME", str(folder / "home"))
        patched.setenv("TXBATCH_DATABASE_URL", url)
        patched.setattr("txbatch.wiring.Application", LikeTheDriver)
        engine = connect(url, application_name="txbatch test")
        yield Story(engine, (_words(folder, engine), _days(folder)))
        engine.dispose()


def _job(folder: Path, name: str, defined: str) -> str:
    path = folder / f"{name}.py"
    path.write_text(f"from txbatch import *\n{defined}{MAIN}")
    return str(path)


def _words(folder: Path, engine: Engine) -> str:
    log = PartitionedLog(folder / "log")
    job = _job(folder, "words", WORDS_OF_LOG.format(root=str(log.root)))
    for zero, one in ((["a", "b", "a"], ["c", "c", "a"]), (["a", "d"], ["e", "a"])):
        log.append("0", zero)
        log.append("1", one)
        _command("run", job, "--until-idle")
    with open_runner(load_job(job), settings.resolve()) as runner:
        assert [each.txid for each in runner.restate([2], "to be sure")] == [4]
    log.take_away("1")
    log.append("0", ["f"])
    _command("run", job)
    log.append("0", ["g"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LikeTheDriver, "emit", _fails)
        _command("run", job, code=1)
    _command("abort", "words", "6", "--why", "poison", "--skip")
    log.give_back("1")
    assert list(Retention(engine).fold("words", 1))[-1].horizon == 1
    return job


def _days(folder: Path) -> str:
    (folder / "in").mkdir()
    (folder / "in" / "one").write_text("2024-01-01T10:00Z,a\n2024-01-02T10:00Z,b\n")
    job = _job(folder, "days", DAYS.format(root=str(folder / "in")))
    for start, end in INTERVALS:
        _command("run", job, "--interval", f"{start}T00:00Z", f"{end}T00:00Z")
    _command("rebuild", job, "--why", "to be sure")
    return job


def _command(*arguments: str, code: int = 0) -> None:
    done = CliRunner().invoke(main, list(arguments), prog_name="txbatch")
    assert done.exit_code == code, done.output


def _fails(*_: object) -> None:
    raise RuntimeError("no Spark")


@contextmanager
def changed(engine: Engine, table: str, column: str, value: str, where: str) -> Iterator[None]:
    """Context manager. One column of one row is changed; afterwards it is what it was."""
    with engine.begin() as connection:
        was, type_ = connection.execute(
            text(f"SELECT {column}::text, pg_typeof({column}) FROM {table} WHERE {where}")
        ).one()
        update = f"UPDATE {table} SET {column} = {value} WHERE {where} RETURNING tableoid, ctid::text"
        place = connection.execute(text(update.replace(":", "\\:"))).one()
    try:
        yield
    finally:
        with engine.begin() as connection:
            restored = (
                f"UPDATE {table} SET {column} = CAST(:was AS {type_}) WHERE tableoid = :of AND ctid = CAST(:at AS tid)"
            )
            assert connection.execute(text(restored), {"was": was, "of": place[0], "at": place[1]}).rowcount == 1


def test_nothing_is_told_of_what_nobody_changed(story: Story) -> None:
    assert story.told() == []


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table, (_, columns) in CASES.items() for column in columns]
)
def test_a_column_that_was_changed_is_noticed(story: Story, table: str, column: str) -> None:
    where, columns = CASES[table]
    value, told = columns[column]
    try:
        with changed(story.engine, table.strip(), column, value, where):
            found = story.told()
    except DBAPIError:
        assert told == REFUSED
        return
    assert found, "nobody noticed"
    assert told in " ".join(found)


def test_each_column_has_its_place(story: Story) -> None:
    """A new one must be found here: verify notices it, or it is harmless for a reason."""
    with story.engine.connect() as connection:
        columns = connection.execute(
            text(
                "SELECT format('%s.%s', table_schema, table_name) AS table, table_name, column_name FROM "
                "information_schema.columns WHERE table_schema = 'txbatch' OR format('%s.%s', table_schema, table_name) IN "
                "('state.words', 'contribution.words', 'contribution_base.words')"
            )
        ).all()
    known = {f"{table.strip()}.{column}" for table, (_, columns) in CASES.items() for column in columns}
    there = {f"{row.table}.{row.column_name}" for row in columns if row.table_name not in OTHERS}
    assert there - known - HARMLESS.keys() == set()
    assert HARMLESS.keys() - there == set()
    assert known & HARMLESS.keys() == set()
