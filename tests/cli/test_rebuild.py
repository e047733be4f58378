"""`txbatch rebuild`: all batches are counted again by the job as it is now, beside what counts, and swapped (R23)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli_support import DAYS, MAIN, refused, rows
from click.testing import Result
from forks import Fork
from sqlalchemy import Engine, text
from support import until
from without_spark import WithoutSpark

from txbatch import failpoints, settings
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import BadRecord, TransientError, TxbatchError
from txbatch.launch.job_file import load_job
from txbatch.run import rebuild as run_rebuild
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.storage.staging import AttemptFolder
from txbatch.wiring import open_runner

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
JOB = """
topology = Topology("words")
stream = topology.new_stream("in", OpaquePartitionedLogSpout({root!r}, max_records=2))
stream.group_by("line").persistent_aggregate(OpaqueState("words"), count=Count(){more})
if __name__ == '__main__':
    raise SystemExit(emit(topology))
"""
MORE = ', last=Max("record_offset")'
WHY = ("--why", "the last one, too")


class LikeTheDriver(WithoutSpark):
    """Leaves the reason of a failure in the folder, as the driver does; calls `before` each."""

    before: Callable[[], None] | None = None

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        hook, type(self).before = type(self).before, None
        try:
            if hook is not None:
                hook()
            super().emit(folder, assignment)
        except TxbatchError as error:
            folder.write_error("transient", str(error))
            raise TransientError(str(error)) from error


class Words:
    """A job over a log, which is committed batch by batch, and changed."""

    def __init__(self, log: PartitionedLog, txbatch: Txbatch, write_job: WriteJob, engine: Engine) -> None:
        self.log, self.engine, self._call, self._write = log, engine, txbatch, write_job
        self.job = self.write()

    def write(self, more: str = "", name: str = "words.py") -> str:
        return self._write(name, JOB.format(root=str(self.log.root), more=more))

    def run(self, *given: str) -> Result:
        return self._call("run", *(given or (self.job,)), "--until-idle")

    def ask(self, *given: str) -> Result:
        return self._call(*given)

    def rebuild(self, *given: str) -> Result:
        return self._call("rebuild", *given)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    @property
    def report(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT * FROM report.words ORDER BY line")


@pytest.fixture
def words(
    tmp_path: Path, txbatch: Txbatch, write_job: WriteJob, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> Words:
    """Two batches of two partitions are committed."""
    monkeypatch.setattr("txbatch.wiring.Application", LikeTheDriver)
    monkeypatch.setattr(LikeTheDriver, "before", None)
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["a", "b", "a"])
    log.append("1", ["c", "c", "a"])
    words = Words(log, txbatch, write_job, engine)
    done = words.run()
    assert done.exit_code == 0, done.output
    return words


OLD = [("a", 3, 2), ("b", 1, 1), ("c", 2, 1)]
NEW = [("a", 3, 2, 2), ("b", 1, 1, 1), ("c", 2, 1, 1)]


def counted_anew(words: Words, write_job: WriteJob) -> list[tuple[Any, ...]]:
    """What a topology of another name counts of the same log by the new definition, without its txids."""
    name = write_job("fresh.py", JOB.format(root=str(words.log.root), more=MORE).replace('"words"', '"fresh"'))
    assert words.run(name).exit_code == 0
    return words.rows("SELECT line, count, last FROM report.fresh ORDER BY line")


@pytest.mark.rule("R23")
def test_one_more_value_for_all_history_while_batches_are_committed(
    words: Words, write_job: WriteJob, caplog: pytest.LogCaptureFixture
) -> None:
    before, now = words.job, words.write(MORE, "more.py")
    assert "value 'last' of state 'words' is new" in words.run(now).output

    def meanwhile() -> None:
        refused = words.run(now)
        assert "rebuild 1 of 'words' by" in refused.output
        assert "runs: 0 of 2 batches are counted; let it end, or `txbatch rebuild words --cancel`" in refused.output
        words.log.append("0", ["c", "d"])
        assert words.run(before).exit_code == 0
        assert words.rows("SELECT count FROM report.words WHERE line = 'd'") == [(1,)]

    LikeTheDriver.before = meanwhile
    done = words.rebuild(now, *WHY, "--json")
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert (row["status"], row["counted"], row["swapped_txid"], row["why"]) == ("swapped", 3, 3, WHY[1])
    told = "rebuild 1 of words: txid 2 is counted; 2 of 3 batches are counted, about 0:00:"
    assert [message.startswith(told) for message in caplog.messages].count(True) == 1
    report = words.rows("SELECT line, count, last FROM report.words ORDER BY line")
    assert report == [("a", 3, 2), ("b", 1, 1), ("c", 3, 3), ("d", 1, 4)] == counted_anew(words, write_job)
    assert "value 'last' of state 'words' is gone" in words.run(before).output
    words.log.append("1", ["d"])
    assert words.run(now).exit_code == 0
    assert words.rows("SELECT count, last, txid FROM report.words WHERE line = 'd'") == [(2, 4, 4)]
    assert json.loads(words.rebuild("words", "--status", "--json").stdout)[0]["past_kept"] is True
    assert words.rebuild("words", "--drop-past").exit_code == 0
    assert words.rows("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'state\\_past%'") == [(0,)]


@pytest.mark.rule("R19", "R23")
def test_as_of_a_time_between_the_swap_and_the_next_batch_is_told_to_be_nothing_that_is_kept(words: Words) -> None:
    """As of the newest txid reports had shown what was before."""
    before = datetime.now(UTC).isoformat()
    now = words.write(MORE, "more.py")
    assert words.rebuild(now, *WHY).exit_code == 0
    after = datetime.now(UTC).isoformat()

    def asked(at: str, *given: str) -> Result:
        return words.ask("as-of", "words", "--at", at, *given)

    assert [row["count"] for row in rows(asked(before, "--json"))] == [3, 1, 2]
    told = "reports showed what rebuild 1 had counted anew, with no batch since, which no txid stands for: "
    refused(asked(after), f"{told}`txbatch query`")
    words.log.append("0", ["d"])
    assert words.run(now).exit_code == 0
    refused(asked(after), f"{told}ask as of the next txid; as of txid 2 is what they showed before 20")
    assert [row["count"] for row in rows(asked(datetime.now(UTC).isoformat(), "--json"))] == [3, 1, 2, 1]


@pytest.mark.rule("R17", "R23")
def test_a_restate_meanwhile_is_counted_in_its_place(words: Words) -> None:
    now = words.write(MORE, "more.py")
    assert words.rebuild(now, *WHY).exit_code == 0

    def meanwhile() -> None:
        with open_runner(load_job(now), settings.resolve()) as runner:
            assert [batch.txid for batch in runner.restate([1], "again")] == [3]

    LikeTheDriver.before = meanwhile
    assert words.rebuild(now, "--why", "once more").exit_code == 0
    counted = "SELECT txid, position FROM txbatch.rebuilt WHERE rebuild = 2 ORDER BY txid"
    assert words.rows(counted) == [(2, 2), (3, 1)] or words.rows(counted) == [(1, 1), (2, 2), (3, 1)]
    assert words.report == [("a", 3, 3, 2), ("b", 1, 3, 1), ("c", 2, 3, 1)]
    (row,) = words.rows("SELECT counted, records, to_count FROM report.rebuilds WHERE rebuild = 2")
    assert row == (2, 6, None)  # each position once, with what counts of it


@pytest.mark.rule("R17", "R23")
def test_a_state_joins_where_the_newest_batch_was_restated_and_counts_all(words: Words) -> None:
    with open_runner(load_job(words.job), settings.resolve()) as runner:
        assert [batch.txid for batch in runner.restate([2], "again")] == [3]
    other = 'stream.group_by("line").persistent_aggregate(OpaqueState("others", contributions=False), count=Count())\n'
    now = words.write(MORE + ")\n" + other.removesuffix(")\n"), "more.py")
    assert words.rebuild(now, *WHY).exit_code == 0
    assert words.rows("SELECT line, count FROM report.others ORDER BY line") == [("a", 3), ("b", 1), ("c", 2)]
    assert words.rows("SELECT state, missed FROM report.state_coverage ORDER BY 1") == [("others", 0), ("words", 0)]
    words.log.append("0", ["b"])
    assert words.run(now).exit_code == 0
    assert words.rows("SELECT count, txid FROM report.others WHERE line = 'b'") == [(2, 4)]


@pytest.mark.rule("R10", "R23")
@pytest.mark.parametrize("point", sorted(name for name in failpoints.NAMES if name.startswith("rebuild.")))
def test_stopped_anywhere_and_called_again_it_goes_on(
    words: Words, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = words.write(MORE, "more.py")
    monkeypatch.setenv("TXBATCH_FAILPOINTS", f"{point}=raise")
    stopped = words.rebuild(now, *WHY)
    assert f"FailpointReached: {point}" in stopped.output
    assert words.report == (NEW if point == "rebuild.swapped" else OLD)
    monkeypatch.delenv("TXBATCH_FAILPOINTS")
    assert words.rebuild(now, *WHY).exit_code == 0
    assert words.rows("SELECT status, counted FROM report.rebuilds") == [("swapped", 2)]
    assert words.report == NEW
    assert words.run(now).exit_code == 0


@pytest.mark.rule("R17", "R23")
def test_a_position_that_is_restated_after_it_was_counted_is_counted_again(
    words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = words.write(MORE, "more.py")
    monkeypatch.setenv("TXBATCH_FAILPOINTS", "rebuild.counted=raise")
    assert words.rebuild(now, *WHY).exit_code == 1
    progress = "SELECT counted, records, to_count FROM report.rebuilds"
    monkeypatch.delenv("TXBATCH_FAILPOINTS")
    assert words.rows(progress) == [(1, 4, 1)]
    with open_runner(load_job(words.job), settings.resolve()) as runner:
        assert [batch.txid for batch in runner.restate([1], "again")] == [3]
    assert words.rows(progress) == [(0, 0, 2)]
    assert words.rebuild(now).exit_code == 0
    assert words.rows(progress) == [(2, 6, None)]
    assert words.report == [("a", 3, 3, 2), ("b", 1, 3, 1), ("c", 2, 3, 1)]


@pytest.mark.rule("R17", "R23")
def test_a_batch_has_the_records_that_were_counted_again_and_its_restate_those_of_then(
    txbatch: Txbatch, write_job: WriteJob, engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "in" / "days"
    file.parent.mkdir()

    def arrive(day: int) -> None:
        with file.open("a") as lines:
            lines.write(f"2024-01-0{day}T10:00Z,a\n")

    def done(*given: str) -> None:
        result = txbatch(*given)
        assert result.exit_code == 0, result.output

    def told(view: str, columns: str) -> list[tuple[Any, ...]]:
        with engine.connect() as connection:
            found = connection.execute(text(f"SELECT {columns} FROM report.{view} ORDER BY txid"))
            return [tuple(row) for row in found]

    job = write_job("days.py", DAYS.format(root=str(file.parent)) + MAIN)
    for day in (1, 2):
        arrive(day)
        done("run", job, "--interval", f"2024-01-0{day}T00:00Z", f"2024-01-0{day + 1}T00:00Z")
    arrive(1)
    done("restate", job, "1", "--why", "late")
    arrive(1)
    arrive(2)
    more = DAYS.format(root=str(file.parent)).replace("Count()", 'Count(), names=Count("name")')
    done("rebuild", write_job("more.py", more + MAIN), "--why", "names, too")
    assert told("days", "count, names") == [(5, 5)]
    assert told("batches", "txid, records, replaced_by") == [(1, 1, 3), (2, 2, None), (3, 3, None)]
    assert told("restatements", "position, records_before, records") == [(1, 1, 2)]
    assert rows(txbatch("status", "days", "--json"))[0]["records"] == 5
    done("verify", str(tmp_path / "more.py"))


ALL_TABLES = """
SELECT c.relkind, format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'v') AND n.nspname !~ '^pg_|information_schema' ORDER BY 2
"""


def stored(words: Words) -> list[tuple[str, int]]:
    """All tables and views by name, each table with its number of rows."""
    return [
        (name, 0 if kind == "v" else words.rows(f"SELECT count(*) FROM {name}")[0][0])
        for kind, name in words.rows(ALL_TABLES)
    ]


@pytest.mark.rule("R23")
def test_a_plan_of_it_says_what_it_reads_and_what_becomes_of_keys_and_stores_nothing(
    words: Words, txbatch: Txbatch, home: Path
) -> None:
    other = 'stream.group_by("record_offset").persistent_aggregate(OpaqueState("offsets"), count=Count())\n'
    now = words.write(MORE + ")\n" + other.removesuffix(")\n"), "more.py")
    tables, staged = stored(words), sorted((home / "staging").rglob("*"))
    (planned,) = json.loads(txbatch("rebuild", now, "--plan", "--all", "--json").stdout)
    assert [planned[name] for name in ("positions", "first", "last", "records")] == [2, 1, 2, 6]
    assert planned["took"] > 0
    assert planned["reads"] == [{"stream": "in", "partitions": 2, "read": 4, "left_out": 0, "records": 6}]
    assert (planned["counted"], planned["records_before"], planned["records_after"]) == ([1, 2], 6, 6)
    kept, new = planned["states"]
    assert [kept[name] for name in ("state", "before", "after", "changed", "why_not")] == ["words", 3, 3, 0, None]
    assert kept["examples"][0] == {
        "key": {"line": "a"},
        "stored": {"count": "3"},
        "recomputed": {"count": "3", "last": "2"},
    }
    assert [new[name] for name in ("state", "before", "after", "changed", "why_not")] == [
        "offsets",
        None,
        3,
        None,
        "it is new",
    ]
    newest = txbatch("rebuild", now, "--plan", "--sample", "1").stdout
    assert "words: 2 batches would be counted again, txids 1 to 2: 6 records; counting them took " in newest
    assert "words: value 'last' of state 'words' is new" in newest
    assert "Counted now, 1 of them, the newest (--all counts all): 2 records, 2 before. Of these alone:" in newest
    assert "words, line a: count=2 -> count=2, last=2" in newest
    assert (stored(words), sorted((home / "staging").rglob("*"))) == (tables, staged)
    assert words.report == OLD
    wrong = txbatch("rebuild", now, "--plan", "--all", "--sample", "1")
    assert (wrong.exit_code, "give it, and one of the two" in wrong.output) == (2, True)


@pytest.mark.rule("R17", "R23")
def test_a_plan_of_it_tells_what_has_other_keys_was_restated_or_would_fail(words: Words, txbatch: Txbatch) -> None:
    with open_runner(load_job(words.job), settings.resolve()) as runner:
        assert [batch.txid for batch in runner.restate([1], "again")] == [3]
    by_offset = JOB.format(root=str(words.log.root), more="").replace('group_by("line")', 'group_by("record_offset")')
    now = words._write("other.py", by_offset)
    (planned,) = json.loads(txbatch("rebuild", now, "--plan", "--json").stdout)
    assert planned["counted"] == [2, 1]  # in the order of their versions, as a rebuild counts them
    (state,) = planned["states"]
    assert (state["before"], state["after"], state["changed"]) == (3, 3, None)
    assert "other keys" in state["why_not"]
    assert state["examples"][0]["recomputed"] == {"count": "2"}

    def fails() -> None:
        LikeTheDriver.before = fails  # together, and each by itself
        raise BadRecord("state 'words': no c is expected")

    LikeTheDriver.before = fails
    failed = txbatch("rebuild", now, "--plan")
    assert failed.exit_code == 1
    assert "words: position 2 cannot be counted by the job as it is now: " in failed.output
    assert "no c is expected" in failed.output


@pytest.mark.rule("R23")
def test_the_same_words_for_the_same_job_count_nothing_again_and_say_so(words: Words) -> None:
    now = words.write(MORE, "more.py")
    first = words.rebuild(now, *WHY)
    assert "rebuild 1 of words counts; up to txid 2 the states before it are kept" in first.output
    again = words.rebuild(now, *WHY)
    assert again.exit_code == 0
    assert "counts already: nothing was counted again. Give another why to count all once more" in again.stdout
    (row,) = json.loads(words.rebuild(now, *WHY, "--json").stdout)
    assert (row["rebuild"], row["earlier"]) == (1, True)
    (row,) = json.loads(words.rebuild(now, "--why", "once more", "--json").stdout)
    assert (row["rebuild"], row["earlier"]) == (2, False)


@pytest.mark.rule("R17", "R23", "R24")
def test_verify_finds_nothing_wrong_with_what_was_restated_before_within_and_after_a_rebuild(
    words: Words, txbatch: Txbatch
) -> None:
    now = words.write(MORE, "more.py")

    def restated(job: str, txid: int, *expected: int) -> None:
        with open_runner(load_job(job), settings.resolve()) as runner:
            assert [batch.txid for batch in runner.restate([txid], f"again, {expected}")] == list(expected)

    def meanwhile() -> None:
        restated(words.job, 2, 4)
        restated(words.job, 2, 5)

    restated(words.job, 1, 3)
    LikeTheDriver.before = meanwhile
    assert words.rebuild(now, *WHY).exit_code == 0
    restated(now, 1, 6)
    verified = txbatch("verify", now)
    assert (verified.exit_code, "DIFFERENT" in verified.output) == (0, False), verified.output


@pytest.mark.rule("R10", "R23")
def test_a_second_call_is_refused_while_the_first_lives_and_goes_on_once_it_was_killed(
    words: Words, process_without_spark: Callable[..., Fork], tmp_path: Path
) -> None:
    now, held = words.write(MORE, "more.py"), tmp_path / "held"
    first = process_without_spark("rebuild", now, *WHY, TXBATCH_FAILPOINTS=f"rebuild.before_commit=block:{held}")
    until(lambda: held.exists() or first.poll() is not None, "the first call does not come to its commit", seconds=90)
    second = words.rebuild(now, *WHY)
    assert (second.exit_code, "another process rebuilds it" in second.output) == (1, True), second.output
    assert words.run().exit_code == 0
    first.kill()
    first.communicate()
    assert words.report == OLD
    assert words.rebuild(now).exit_code == 0
    assert words.report == NEW


@pytest.mark.rule("R23", "R24")
def test_a_definition_that_fails_on_old_records_stops_and_names_them_and_the_old_states_go_on(words: Words) -> None:
    now = words.write(', longest=Max("line")')

    def fails() -> None:
        LikeTheDriver.before = fails  # together, and each by itself
        raise BadRecord("state 'words': no c is expected; the record is {'line': 'c'}")

    LikeTheDriver.before = fails
    failed = words.rebuild(now, *WHY)
    assert failed.exit_code == 1
    assert "rebuild 1 of words: position 1 cannot be counted by the job as it is now" in failed.output
    assert "no c is expected" in failed.output
    assert words.report == OLD
    LikeTheDriver.before = None
    mended = words.write(MORE)
    assert "the job has changed since: put it back, or `txbatch rebuild words --cancel`" in words.rebuild(mended).output
    cancelled = words.rebuild("words", "--cancel")
    assert (cancelled.exit_code, "cancelled" in cancelled.output) == (0, True)
    assert words.rows("SELECT count(*) FROM txbatch.rebuild") == [(0,)]
    assert words.rebuild(mended, *WHY).exit_code == 0
    assert words.report == NEW


@pytest.mark.rule("R23")
def test_what_cannot_be_read_whole_now_is_named_and_read_when_it_is_back(words: Words, tmp_path: Path) -> None:
    now = words.write(MORE, "more.py")
    words.log.root.rename(tmp_path / "away")
    away = words.rebuild(now, *WHY)
    assert (away.exit_code, words.report) == (1, OLD), away.output
    (tmp_path / "away").rename(words.log.root)
    assert words.rebuild(now).exit_code == 0
    assert words.report == NEW


@pytest.mark.rule("R23", "R19")
def test_a_report_that_does_not_end_is_named_and_the_next_call_swaps(
    words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = words.write(MORE, "more.py")
    monkeypatch.setattr(run_rebuild, "PATIENCE_SECONDS", 0.0)
    with words.engine.connect() as report:
        report.execute(text("SELECT * FROM report.words"))
        held = words.rebuild(now, *WHY)
        assert held.exit_code == 1
        assert "all is counted, and cannot be swapped while others read" in held.output
    assert words.report == OLD
    assert words.rebuild(now).exit_code == 0
    assert words.report == NEW


@pytest.mark.rule("R23")
def test_wrong_calls_say_what_is_right(words: Words) -> None:
    for given, told, code in (
        ((words.job,), "say why all of it is counted again", 1),
        (("words", "--cancel"), "no rebuild of topology 'words' is running", 1),
        (("words", "--cancel", "--status"), "give one", 2),
        (("nothing", "--cancel"), "no topology 'nothing' is known", 1),
        ((words.job, "--why", " "), "it is given empty", 2),
    ):
        result = words.rebuild(*given)
        assert (result.exit_code, told in result.output) == (code, True), result.output
    assert words.report == OLD
