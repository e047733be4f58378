"""`txbatch verify`: what is committed is read again and compared, and nothing is changed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from cli_support import DAYS, MAIN, WORDS_OF_LOG, contents, refused
from click.testing import Result
from sqlalchemy import Engine, text
from without_spark import LikeTheDriver

from txbatch import settings
from txbatch.launch.job_file import load_job
from txbatch.postgres.database.engine import connect
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.wiring import open_runner

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
BARE = 'stream.group_by("line").persistent_aggregate(OpaqueState("bare", contributions=False), count=Count())\n'


@pytest.fixture
def log(tmp_path: Path, txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch) -> PartitionedLog:
    monkeypatch.setattr("txbatch.wiring.Application", LikeTheDriver)
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["a", "b", "a"])
    log.append("1", ["c", "c", "a"])
    return log


@pytest.fixture
def job(log: PartitionedLog, txbatch: Txbatch, write_job: WriteJob) -> str:
    """Two batches of two partitions are committed."""
    job = write_job("words.py", WORDS_OF_LOG.format(root=str(log.root)) + MAIN)
    done = txbatch("run", job, "--until-idle")
    assert done.exit_code == 0, done.output
    return job


def verified(result: Result) -> dict[str, dict[str, Any]]:
    """What --json says, by what was verified."""
    assert result.exit_code in (0, 1), result.output
    found = json.loads(result.stdout)
    assert isinstance(found, list), result.output
    assert (result.exit_code == 0) == all(row["ok"] for row in found)
    return {row["what"]: row for row in found}


def outcomes(result: Result) -> dict[str, str]:
    return {what: row["outcome"] for what, row in verified(result).items()}


def change(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        assert connection.execute(text(statement)).rowcount == 1


@pytest.mark.rule("R24")
def test_what_is_as_it_was_counted_is_equal_and_nothing_is_changed(
    txbatch: Txbatch, job: str, engine: Engine, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, staged = contents(engine), sorted((home / "staging").rglob("*"))
    assert outcomes(txbatch("verify", job, "--json")) == {"txid 1": "EQUAL", "txid 2": "EQUAL", "state words": "EQUAL"}
    assert contents(engine) == before
    assert sorted((home / "staging").rglob("*")) == staged
    table = txbatch("verify", "words")
    assert (table.exit_code, "txid 2" in table.stdout) == (0, True)
    assert "words: txid 1 is EQUAL, 4 records (1 of 2)" in caplog.messages


@pytest.mark.rule("R24")
def test_what_was_changed_by_hand_is_different_and_named(txbatch: Txbatch, job: str, engine: Engine) -> None:
    change(engine, "UPDATE contribution.words SET count = count + 1 WHERE txid = 1 AND line = 'a'")
    change(engine, "DELETE FROM contribution.words WHERE txid = 2 AND line = 'a'")
    change(engine, "INSERT INTO contribution.words (line, position, txid, count, last) VALUES ('x', 2, 2, 1, null)")
    found = verified(txbatch("verify", job, "--json"))
    (first,) = found["txid 1"]["compared"][0]["examples"]
    assert first == {
        "key": {"line": "a"},
        "stored": {"count": "2", "last": "0"},
        "recomputed": {"count": "1", "last": "0"},
    }
    assert [each["key"]["line"] for each in found["txid 2"]["compared"][0]["examples"]] == ["a", "x"]
    assert [each["stored"] is None for each in found["txid 2"]["compared"][0]["examples"]] == [True, False]
    assert found["txid 2"]["restate"] == 'txbatch restate words 2 --why "..."'
    assert "changed by hand" in found["txid 1"]["reason"]
    assert found["state words"]["different"] == 2  # a has lost as much as it had gained
    said = txbatch("verify", job, "2").output
    assert "txid 2, state words: line a: stored nothing, counted again count=2, last=2\n" in said
    assert "txid 2: count today's records instead: txbatch restate words 2" in said


@pytest.mark.rule("R24")
def test_a_state_that_is_not_its_contributions_is_different(txbatch: Txbatch, job: str, engine: Engine) -> None:
    change(engine, "DELETE FROM state.words WHERE line = 'b'")
    change(engine, "UPDATE state.words SET last = 7 WHERE line = 'c'")
    found = verified(txbatch("verify", job, "1", "--json"))
    assert {what: row["outcome"] for what, row in found.items()} == {"txid 1": "EQUAL", "state words": "DIFFERENT"}
    keys = {each["key"]["line"]: each["stored"] for each in found["state words"]["compared"][0]["examples"]}
    assert keys == {"b": None, "c": {"count": "2", "last": "7", "txid": "1"}}


@pytest.mark.rule("R24")
def test_another_source_is_unverifiable(txbatch: Txbatch, job: str, log: PartitionedLog) -> None:
    segment = next((log.root / "0").iterdir())
    segment.write_text("a\nz\na\n")
    log.delete_before("1", 3)
    found = verified(txbatch("verify", job, "--json"))
    assert {what: row["outcome"] for what, row in found.items()} == {
        "txid 1": "UNVERIFIABLE",
        "txid 2": "UNVERIFIABLE",
        "state words": "EQUAL",
    }
    assert "records 0 to 2 of partition '1' are gone" in found["txid 1"]["reason"]


@pytest.mark.rule("R24")
def test_other_records_are_told_by_number_and_partition(txbatch: Txbatch, job: str, log: PartitionedLog) -> None:
    segment = next((log.root / "0").iterdir())
    segment.write_text("a\nz\na\n")
    found = verified(txbatch("verify", job, "--json"))
    assert found["txid 2"]["outcome"] == "EQUAL"
    assert found["txid 1"]["outcome"] == "UNVERIFIABLE"
    told = "partition '0' of stream 'in' has changed since: 2 records were counted, now other 2 records are there"
    assert found["txid 1"]["reason"] == told


@pytest.mark.rule("R13", "R24")
def test_a_hole_is_told_until_it_is_filled_and_is_no_part_of_its_batch(
    txbatch: Txbatch, job: str, log: PartitionedLog
) -> None:
    log.append("0", ["b"])
    log.append("1", ["d"])
    log.take_away("1")
    assert txbatch("run", job).exit_code == 0
    log.give_back("1")
    found = verified(txbatch("verify", job, "--json"))
    assert {what: row["outcome"] for what, row in found.items()} == {
        **dict.fromkeys(("txid 1", "txid 2", "txid 3", "state words"), "EQUAL"),
        "missing": "NOT COUNTED",
    }
    assert (
        found["missing"]["reason"] == "partition '1' of stream 'in' could not be read in txid 3, and is not read since"
    )
    assert txbatch("verify", job, "1", "3").exit_code == 0  # named: what is missing besides is not asked
    assert txbatch("run", job).exit_code == 0
    assert "missing" not in verified(txbatch("verify", job, "--json"))


@pytest.mark.rule("R16", "R24")
def test_what_was_given_up_is_told(
    txbatch: Txbatch, job: str, log: PartitionedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append("0", ["d"])

    def fails(*_: object) -> None:
        raise RuntimeError("no Spark")

    with monkeypatch.context() as patched:
        patched.setattr(LikeTheDriver, "emit", fails)
        assert txbatch("run", job).exit_code == 1
    assert txbatch("abort", "words", "3", "--why", "poison", "--skip").exit_code == 0
    found = verified(txbatch("verify", job, "4", "--json"))
    assert (found["txid 4"]["outcome"], found["txid 4"]["ok"]) == ("SKIPPED", True)
    assert found["txid 4"]["reason"] == "its records were given up: poison"
    refused(txbatch("verify", job, "3"), "words: txid 3 is aborted, nothing of it counts; see `txbatch batches words`")


@pytest.mark.rule("R17", "R24")
def test_of_a_restated_batch_the_version_that_counts_is_verified(
    txbatch: Txbatch, job: str, engine: Engine, log: PartitionedLog
) -> None:
    """Twice: the source has nothing of what the first two versions contributed; that it is what was staged is known."""
    for why, line in (("one was wrong", "z"), ("no, another one", "y")):
        next((log.root / "0").iterdir()).write_text(f"a\n{line}\na\n")
        assert next(iter(outcomes(txbatch("verify", job, "1", "--json")).values())) == "UNVERIFIABLE"
        with open_runner(load_job(job), settings.resolve()) as runner:
            (restated,) = runner.restate([1], why)
    assert restated.txid == 4
    assert outcomes(txbatch("verify", job, "--json")) == {
        "txid 4 (restates 1)": "EQUAL",
        "txid 2": "EQUAL",
        "state words": "EQUAL",
    }
    for asked in ("1", "3", "4"):
        assert list(outcomes(txbatch("verify", job, asked, "--json"))) == ["txid 4 (restates 1)", "state words"]
    change(engine, "UPDATE contribution.words SET count = 99 WHERE txid = 3 AND line = 'z'")
    (told,) = [row["reason"] for what, row in verified(txbatch("verify", job, "--json")).items() if what == "ledger"]
    assert "txid 3: contribution.words has 3 keys of txid 3 whose total of 'count' is 102, its attempt staged 4" in told
    change(engine, "UPDATE contribution.words SET count = 99 WHERE txid = 4 AND line = 'y'")
    assert outcomes(txbatch("verify", job, "1", "--json"))["txid 4 (restates 1)"] == "DIFFERENT"


@pytest.mark.rule("R22", "R24")
def test_what_is_folded_is_left_out_and_unverifiable_where_it_is_named(
    txbatch: Txbatch, job: str, engine: Engine
) -> None:
    change(engine, "UPDATE txbatch.state SET horizon = 1")
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO contribution_base.words (line, count, last, txid) "
                "SELECT line, count, last, txid FROM contribution.words WHERE txid = 1"
            )
        )
        connection.execute(text("DELETE FROM contribution.words WHERE txid = 1"))
    found = verified(txbatch("verify", job, "--json"))
    assert {what: row["outcome"] for what, row in found.items()} == {
        "txid 2": "EQUAL",
        "state words": "EQUAL",
        "folded": "SKIPPED",
    }
    assert found["folded"]["reason"] == "1 batches, by retention"
    assert list(outcomes(txbatch("verify", job, "--sample", "2", "--json"))) == ["txid 2", "state words", "folded"]
    named = verified(txbatch("verify", job, "1", "--json"))["txid 1"]
    assert named["outcome"] == "UNVERIFIABLE"
    assert named["reason"] == "txid 1 is folded: what single batches up to 1 contributed is not kept"


@pytest.mark.rule("R24")
def test_a_state_without_contributions_is_counted_again_from_all_batches(
    txbatch: Txbatch, log: PartitionedLog, write_job: WriteJob, engine: Engine, home: Path
) -> None:
    job = write_job("words.py", WORDS_OF_LOG.format(root=str(log.root)) + BARE + MAIN)
    assert txbatch("run", job, "--until-idle").exit_code == 0
    assert outcomes(txbatch("verify", job, "--json"))["state bare"] == "EQUAL"
    change(engine, "UPDATE state.bare SET count = 9 WHERE line = 'b'")
    found = verified(txbatch("verify", job, "--json"))
    (different,) = found["state bare"]["compared"][0]["examples"]
    assert (different["stored"], different["recomputed"]) == ({"count": "9"}, {"count": "1"})
    told = verified(txbatch("verify", job, "1", "--json"))["state bare"]
    assert told["outcome"] == "UNVERIFIABLE"
    assert told["reason"] == "it keeps no contributions, and is compared when all batches are verified"
    log.take_away("0")
    found = verified(txbatch("verify", job, "--json"))
    assert found["state bare"]["reason"] == "it keeps no contributions, and txid 1 cannot be read again"
    assert list((home / "staging").rglob("verify-*")) == []


@pytest.mark.rule("R21", "R24")
def test_a_state_in_another_database_is_counted_again_there(
    txbatch: Txbatch,
    log: PartitionedLog,
    write_job: WriteJob,
    databases: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL_WAREHOUSE", databases("warehouse"))
    apart = BARE.replace("contributions=False", 'database="warehouse"')
    job = write_job("words.py", WORDS_OF_LOG.format(root=str(log.root)) + apart + MAIN)
    assert txbatch("run", job, "--until-idle").exit_code == 0
    assert outcomes(txbatch("verify", job, "--json"))["state bare"] == "EQUAL"
    change(connect(databases("warehouse")), "DELETE FROM state.bare WHERE line = 'b'")
    found = verified(txbatch("verify", job, "--json"))["state bare"]
    assert (found["outcome"], found["compared"][0]["examples"][0]["key"]) == ("DIFFERENT", {"line": "b"})


@pytest.mark.rule("R24")
def test_a_spout_that_can_be_read_only_once_is_not_read(
    txbatch: Txbatch, write_job: WriteJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: PartitionedLog
) -> None:
    once = """
    class Once(BatchSpout):
        fields, identity = "line string", {"spout": "Once"}
        def emit_batch(self, spark, txid): ...
        def batch(self, plan):
            return [("a",)]
    topology = Topology("once")
    stream = topology.new_stream("in", Once()).group_by("line")
    stream.persistent_aggregate(OpaqueState("once"), guarantee="at_least_once", count=Count())
    """
    job = write_job("once.py", dedent(once) + MAIN)
    done = txbatch("run", job)
    assert done.exit_code == 0, done.output
    monkeypatch.setattr(LikeTheDriver, "emit", None)
    found = verified(txbatch("verify", job, "--json"))
    assert found["txid 1"]["outcome"] == "UNVERIFIABLE"
    assert found["txid 1"]["reason"] == "stream 'in' can be read only once: its spout is non-transactional"


@pytest.mark.rule("R23", "R24")
def test_what_joined_later_is_compared_from_then_on(
    txbatch: Txbatch, log: PartitionedLog, job: str, write_job: WriteJob, engine: Engine
) -> None:
    least = 'count=Count(), least=Min("record_offset", since="now")'
    more = BARE.replace("contributions=False", 'since="now"')
    write_job("words.py", WORDS_OF_LOG.format(root=str(log.root)).replace("count=Count()", least) + more + MAIN)
    applied = txbatch("change", job, "--why", "asked for", "--yes")
    assert applied.exit_code == 0, applied.output
    log.append("0", ["b"])
    assert txbatch("run", job).exit_code == 0
    found = outcomes(txbatch("verify", job, "--json"))
    assert found == dict.fromkeys(("txid 1", "txid 2", "txid 3", "state words", "state bare"), "EQUAL")
    change(engine, "UPDATE contribution.words SET least = 9 WHERE txid = 3")
    (example,) = verified(txbatch("verify", job, "3", "--json"))["txid 3"]["compared"][0]["examples"]
    assert (example["stored"]["least"], example["recomputed"]["least"]) == ("9", "3")


@pytest.mark.rule("R22", "R24")
def test_where_one_state_kept_no_contributions_yet_the_others_are_compared(
    txbatch: Txbatch, log: PartitionedLog, write_job: WriteJob, engine: Engine
) -> None:
    job = write_job("words.py", WORDS_OF_LOG.format(root=str(log.root)) + BARE + MAIN)
    assert txbatch("run", job, "--until-idle").exit_code == 0
    kept = BARE.replace(", contributions=False", "")
    write_job("words.py", WORDS_OF_LOG.format(root=str(log.root)) + kept + MAIN)
    assert txbatch("change", job, "--why", "to restate it", "--yes").exit_code == 0
    log.append("0", ["b"])
    assert txbatch("run", job).exit_code == 0
    found = verified(txbatch("verify", job, "--json"))
    assert {row["outcome"] for row in found.values()} == {"EQUAL"}
    told = "state 'bare' is not compared: txid 1 is folded: what single batches up to 2 contributed is not kept"
    assert [found[f"txid {txid}"]["reason"] for txid in (1, 3)] == [told, None]
    change(engine, "UPDATE contribution.words SET last = 9 WHERE txid = 1 AND line = 'b'")
    different = verified(txbatch("verify", job, "1", "--json"))["txid 1"]
    assert (different["outcome"], different["reason"].endswith(told)) == ("DIFFERENT", True)


@pytest.mark.rule("R23", "R24")
def test_under_another_name_of_its_stream_nothing_is_changed_by_hand(
    txbatch: Txbatch, log: PartitionedLog, job: str, write_job: WriteJob, engine: Engine
) -> None:
    renamed = WORDS_OF_LOG.format(root=str(log.root)).replace('new_stream("in", ', 'new_stream("log", was="in", spout=')
    write_job("words.py", renamed + MAIN)
    applied = txbatch("change", job, "--why", "a better name", "--yes")
    assert applied.exit_code == 0, applied.output
    assert outcomes(txbatch("verify", job, "--json")) == {"txid 1": "EQUAL", "txid 2": "EQUAL", "state words": "EQUAL"}
    change(engine, "UPDATE txbatch.batch SET metadata = replace(metadata::text, '3', '2')::json WHERE txid = 2")
    assert "txbatch.batch.metadata" in verified(txbatch("verify", job, "--json"))["txid 2"]["reason"]


def test_a_sample_is_the_same_for_the_same_seed(
    txbatch: Txbatch, job: str, log: PartitionedLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.append("0", ["e"] * 8)
    assert txbatch("run", job, "--until-idle").exit_code == 0
    first = txbatch("verify", job, "--sample", "2", "--json")
    (seed,) = (each.rpartition(" ")[2] for each in caplog.messages if "2 of 6 batches, by seed " in each)
    again = txbatch("verify", job, "--sample", "2", "--seed", seed, "--json")
    assert len(verified(first)) == 3
    assert verified(again) == verified(first)


@pytest.fixture
def days(tmp_path: Path, write_job: WriteJob, txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """The first and the third day are committed."""
    monkeypatch.setattr("txbatch.wiring.Application", LikeTheDriver)
    root = tmp_path / "in"
    root.mkdir()
    (root / "one").write_text("2024-01-01T10:00Z,a\n2024-01-03T10:00Z,b\n")
    job = write_job("days.py", DAYS.format(root=str(root)) + MAIN)
    for day in ("01", "03"):
        done = txbatch("run", job, "--interval", f"2024-01-{day}T00:00Z", f"2024-01-0{int(day) + 1}T00:00Z")
        assert done.exit_code == 0, done.output
    return job, root


@pytest.mark.rule("R2", "R24")
def test_late_records_are_told_with_the_command_that_counts_them_and_gaps_fail(
    txbatch: Txbatch, days: tuple[str, Path]
) -> None:
    job, root = days
    (root / "two").write_text("2024-01-01T11:00Z,a\n2024-01-02T00:00Z,c\n")
    assert txbatch("verify", job, "1").exit_code == 1
    found = verified(txbatch("verify", job, "--json"))
    assert {what: row["outcome"] for what, row in found.items()} == {
        "txid 1": "LATE",
        "txid 2": "EQUAL",
        "state days": "EQUAL",
        "missing": "NOT COUNTED",
    }
    assert (found["txid 1"]["ok"], found["txid 2"]["ok"]) == (False, True)
    assert found["txid 1"]["reason"] == "1 records of stream 'in' came late and are not counted"
    assert found["txid 1"]["changed"] == [{"stream": "in", "file": "two", "change": "appeared"}]
    assert (found["txid 2"]["reason"], found["txid 2"]["restate"]) == (None, None)
    assert found["missing"]["reason"] == "2024-01-02 00:00 to 2024-01-03 00:00 UTC is not counted"
    assert found["txid 1"]["restate"] == 'txbatch restate days 1 --why "..."'
    done = txbatch(*shlex.split(found["txid 1"]["restate"].replace("days", job))[1:])
    assert done.exit_code == 0, done.output
    assert txbatch("run", job, "--interval", "2024-01-02T00:00Z", "2024-01-03T00:00Z").exit_code == 0
    table = txbatch("verify", job)
    assert table.exit_code == 0, table.output
    assert "txid 3 (restates 1)  EQUAL" in table.stdout
    assert "late" not in table.stdout


@pytest.mark.rule("R23", "R24")
def test_after_a_rebuild_what_that_read_is_read_again(txbatch: Txbatch, days: tuple[str, Path], engine: Engine) -> None:
    """It counted the interval as it was then, with what had come late, by another definition."""
    job, root = days
    (root / "two").write_text("2024-01-01T11:00Z,a\n")
    Path(job).write_text(Path(job).read_text().replace("count=Count()", 'count=Count(), least=Min("name")'))
    done = txbatch("rebuild", job, "--why", "the least, too")
    assert done.exit_code == 0, done.output
    found = verified(txbatch("verify", job, "1", "--json"))
    assert {what: row["outcome"] for what, row in found.items()} == {"txid 1": "EQUAL", "state days": "EQUAL"}
    assert (found["txid 1"]["records"], found["txid 1"]["reason"]) == (2, None)
    change(engine, "UPDATE contribution.days SET least = 'x' WHERE txid = 1")
    assert outcomes(txbatch("verify", job, "1", "--json"))["txid 1"] == "DIFFERENT"
    (root / "two").unlink()
    assert outcomes(txbatch("verify", job, "1", "--json"))["txid 1"] == "UNVERIFIABLE"


@pytest.mark.rule("R24")
def test_a_file_that_is_gone_is_named(txbatch: Txbatch, days: tuple[str, Path]) -> None:
    job, root = days
    (root / "one").rename(root / "_one")
    (root / "other").write_text("2024-01-03T10:00Z,b\n")
    found = verified(txbatch("verify", job, "1", "--json"))["txid 1"]
    assert found["outcome"] == "UNVERIFIABLE"
    assert found["reason"] == "the interval of stream 'in' has 0 records now, others than the 1 that are counted"
    assert {(each["file"], each["change"]) for each in found["changed"]} == {("one", "gone"), ("other", "appeared")}
    assert found["restate"] == 'txbatch restate days 1 --why "..."'


@pytest.mark.rule("R24")
def test_an_interval_is_read_as_it_is_now_whatever_became_of_files_that_have_nothing_of_it(
    txbatch: Txbatch, days: tuple[str, Path]
) -> None:
    """Its records may stand in other files by now; those of other days may shrink, grow, come and go."""
    job, root = days
    (root / "one").unlink()
    (root / "first").write_text("2024-01-01T10:00Z,a\n")
    (root / "third").write_text("2024-01-03T10:00Z,c\n")
    found = verified(txbatch("verify", job, "--json"))
    assert {what: row["outcome"] for what, row in found.items()} == {
        "txid 1": "EQUAL",
        "txid 2": "UNVERIFIABLE",
        "state days": "EQUAL",
        "missing": "NOT COUNTED",
    }
    assert (found["txid 1"]["reason"], found["txid 1"]["changed"]) == (None, [])


@pytest.mark.rule("R24")
def test_a_restate_is_advised_only_where_it_could_read_the_interval(txbatch: Txbatch, days: tuple[str, Path]) -> None:
    job, root = days
    (root / "one").write_text("2024-01-01T10:00Z,a\n2024-01-03T10:00Z,b\n2024-01-03T")
    found = verified(txbatch("verify", job, "1", "--json"))["txid 1"]
    assert (found["outcome"], found["restate"]) == ("UNVERIFIABLE", None)
    assert found["reason"].startswith("the interval as it is now cannot be read: ")
    assert [each["file"] for each in found["changed"]] == ["one"]


@pytest.mark.rule("R24")
def test_bad_input_is_refused_before_anything_is_read(
    txbatch: Txbatch, job: str, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch, log: PartitionedLog
) -> None:
    monkeypatch.setattr(LikeTheDriver, "emit", None)
    refused(txbatch("verify", "nosuch"), "no topology 'nosuch' is known; `txbatch status` lists them")
    refused(txbatch("verify", "words", "1", "9"), "topology 'words' has no txid 9; see `txbatch batches words`")
    other = write_job("words.py", WORDS_OF_LOG.format(root=str(log.root)).replace("count=Count(), ", "") + MAIN)
    refused(txbatch("verify", other), "is defined otherwise now")
    unknown = write_job("other.py", WORDS_OF_LOG.format(root=str(log.root)).replace('"words"', '"other"') + MAIN)
    refused(txbatch("verify", unknown), "no topology 'other' is known")
    for wrong in (
        ["words", "--sample", "0"],
        ["words", "1", "--sample", "1"],
        ["words", "--seed", "1"],
        ["words", "x"],
    ):
        assert txbatch("verify", *wrong).exit_code == 2


CHECKED = "    def batch(self, plan):\n        self.check_plan(plan)  # as Spark's reader does\n"


@pytest.mark.rule("R17", "R24")
def test_a_mended_day_is_told_by_its_own_records_and_advised_to_be_restated_alone(
    txbatch: Txbatch, write_job: WriteJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another day's file, mended too, is the first that differs; no committed batch can be aborted."""
    monkeypatch.setattr("txbatch.wiring.Application", LikeTheDriver)
    root = tmp_path / "in"
    root.mkdir()
    for day in (1, 2, 3):
        (root / f"{day}.csv").write_text(f"2024-01-0{day}T10:00Z,wrong\n")
    text = DAYS.format(root=str(root)).replace("    def batch(self, plan):\n", CHECKED)
    job = write_job("days.py", text + MAIN)
    for day in (1, 2, 3):
        done = txbatch("run", job, "--interval", f"2024-01-0{day}T00:00Z", f"2024-01-0{day + 1}T00:00Z")
        assert done.exit_code == 0, done.output
    for day in (1, 2):
        (root / f"{day}.csv").write_text(f"2024-01-0{day}T10:00Z,b\n")
    found = verified(txbatch("verify", job, "--json"))
    assert {what: row["outcome"] for what, row in found.items()} == {
        **{"txid 1": "UNVERIFIABLE", "txid 2": "UNVERIFIABLE", "txid 3": "EQUAL"},
        "state days": "EQUAL",
    }
    told = "the interval of stream 'in' has 1 records now, others than the 1 that are counted"
    assert [found[f"txid {txid}"]["reason"] for txid in (1, 2, 3)] == [told, told, None]
    assert [row["file"] for row in found["txid 2"]["changed"]] == ["1.csv", "2.csv"]
    assert found["txid 2"]["restate"] == 'txbatch restate days 2 --why "..."'
    (root / "3.csv").write_text("2024-01-03T10:00Z,b\nno record\n")
    unread = verified(txbatch("verify", job, "2", "--json"))["txid 2"]["reason"]
    assert unread.startswith("the interval as it is now cannot be read: ")
    assert unread.endswith(f"; {root}/1.csv had 24 bytes when it was planned, now 20")


@pytest.mark.rule("R24")
def test_a_file_that_is_read_once_and_was_cut_off_since_is_restated_not_aborted(
    txbatch: Txbatch, write_job: WriteJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txbatch.wiring.Application", LikeTheDriver)
    root = tmp_path / "in"
    root.mkdir()
    (root / "one").write_text("a\nb\n")
    files = """
    class Files(FileSpout):
        def batch(self, plan):
            self.check_plan(plan)  # as Spark's reader does
            return [(line,) for name in plan["partitions"] for line in (self.root / name).read_text().split()]
    topology = Topology("files")
    stream = topology.new_stream("in", Files({root!r})).group_by("line")
    stream.persistent_aggregate(OpaqueState("files"), count=Count())
    """
    job = write_job("files.py", dedent(files).format(root=str(root)) + MAIN)
    done = txbatch("run", job)
    assert done.exit_code == 0, done.output
    (root / "one").write_text("a\n")
    row = verified(txbatch("verify", job, "1", "--json"))["txid 1"]
    assert row["reason"] == f"{root}/one had 4 bytes when it was planned, now 2"
    assert row["restate"] == 'txbatch restate files 1 --why "..."'
