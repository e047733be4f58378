"""Each error has words of its own: what is wrong, by name, in place of the words of a library, and only what is true."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click
import pytest
import refusals

from txbatch.cli import arguments
from txbatch.cli.printing import errors_told
from txbatch.cli.reading.ask import _question
from txbatch.core.batch.manifest import StagedFile, StagedState
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import DefinitionError, TerminalError
from txbatch.core.records.fields import Field, parse_fields
from txbatch.core.text import list_numbers
from txbatch.core.topology.kept_windows import describe_time
from txbatch.direct.queries import _records
from txbatch.launch.job_file import load_job
from txbatch.orchestration.intervals import written
from txbatch.orchestration.result import interval
from txbatch.postgres.database.engine import parse
from txbatch.storage import parquet
from txbatch.storage.staging import Staging
from txbatch.tables import plain

BEFORE_ALL = "0001-01-01T00:00+14:00"


@pytest.mark.parametrize(
    "split",
    [
        lambda text: arguments.keys([text], ["a", "b"]),
        lambda text: _question("q", parse_fields("a string, b string"), text),
    ],
)
@pytest.mark.parametrize("text", ["a\r,b", "a\n,b\rc", '"a'])
def test_a_key_that_is_no_csv_is_cited(split: Callable[[str], Any], text: str) -> None:
    with pytest.raises(TerminalError) as refused:
        split(text)
    assert repr(text) in str(refused.value)


def test_a_time_before_the_year_1_is_refused_as_a_question() -> None:
    with refusals.refused("TX702", "timestamp", "2026"):
        _question("q", parse_fields("at timestamp"), BEFORE_ALL)
    moment = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    with refusals.refused("TX702", "'q'", "1", "9999", "UTC"):
        _records("query 'q'", [Field("at", "timestamp")], [moment])


@pytest.mark.parametrize("status", [5, 0, None, "bye"])
def test_a_function_of_a_job_that_ends_the_program_is_told(status: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, errors_told():
        raise SystemExit(status)
    assert ended.value.code == 1
    assert f"ended the program (SystemExit: {status})" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["connection_factory", "cursor_factory", "dsn", "async", "async_"])
def test_a_parameter_of_the_driver_is_none_of_the_url(name: str) -> None:
    with pytest.raises(
        DefinitionError, match=f"TXBATCH_DATABASE_URL has the option '{name}', which libpq does not know"
    ):
        parse(f"postgresql+psycopg2://me@host/database?{name}=x", "TXBATCH_DATABASE_URL")


def test_an_object_of_a_job_that_says_no_class_is_no_topology(tmp_path: Path) -> None:
    job = tmp_path / "odd.py"
    job.write_text(
        "from txbatch import Topology, FixedBatchSpout, OpaqueState, Count\n"
        "class Odd:\n    @property\n    def __class__(self):\n        return 1 / 0\n"
        "odd = Odd()\ntopology = Topology('odd')\n"
        "stream = topology.new_stream('in', FixedBatchSpout('word string', 1, ('a',)))\n"
        "stream.group_by('word').persistent_aggregate(OpaqueState('odd'), count=Count())\n"
    )
    assert load_job(str(job)).topology.name == "odd"


def test_staged_garbage_of_the_right_digest_is_told_by_its_file(tmp_path: Path) -> None:
    assignment = Assignment("t", TransactionAttempt(1, 1), "0123456789", {}, "code")
    folder = Staging(tmp_path.as_uri()).attempt(assignment)
    content = b"no Parquet at all"
    file = folder.path("partials/0/x.parquet")
    Path(file).parent.mkdir(parents=True)
    Path(file).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    staged = StagedState((StagedFile("partials/0/x.parquet", len(content), 1, digest),), 1, {})
    with refusals.refused("TX408", "partials/0/x.parquet", "Parquet"):
        list(parquet.read(folder, staged))


def test_of_a_why_that_is_given_empty_nobody_advises_to_leave_it_out() -> None:
    with pytest.raises(click.BadParameter, match=r"^it is given empty; say why$"):
        arguments.WHY.convert(" ", None, None)


def test_a_year_below_1000_has_four_digits() -> None:
    first = datetime(1, 1, 1, tzinfo=UTC)
    told = [written(first, "UTC"), interval(first, first + timedelta(days=1), "UTC"), plain(first)]
    assert told == ["0001-01-01", "0001-01-01 (UTC)", "0001-01-01 00:00:00"]
    assert interval(first, first + timedelta(hours=1), "UTC") == "0001-01-01 00:00 to 01:00 (UTC)"
    assert describe_time(-62135596800000000) == "0001-01-01 00:00 UTC"


def test_numbers_that_follow_each_other_are_told_by_the_first_and_the_last() -> None:
    assert list_numbers("migration", range(1, 34)) == "migrations 1 to 33"
