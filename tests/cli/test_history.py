"""`txbatch why` and `txbatch as-of`: where a number comes from, what it was, and what has no past."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_support import refused
from click.testing import Result
from sqlalchemy import Engine, text

from txbatch import settings
from txbatch.launch.job_file import load_job
from txbatch.reports import Reports
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.wiring import open_runner

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
JOB = """
topology = Topology("words")
stream = topology.new_stream("in", OpaquePartitionedLogSpout({root!r}, max_records=2))
stream.group_by("line").persistent_aggregate(OpaqueState("words"), count=Count(), last=Max("record_offset"))
stream.persistent_aggregate(OpaqueState("all"), mean=Avg("record_offset"))
"""
BARE = """
topology = Topology("bare")
stream = topology.new_stream("in", FixedBatchSpout("word string", 1, ("a")))
stream.group_by("word").persistent_aggregate(OpaqueState("bare", contributions=False), count=Count())
"""


@pytest.fixture
def words(tmp_path: Path, txbatch: Txbatch, write_job: WriteJob) -> str:
    """Two batches, a a | b a, of which the first is counted again by txid 3 as a c."""
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["a", "a", "b", "a"])
    job = write_job("words.py", JOB.format(root=str(log.root)))
    assert txbatch("run", job, "--until-idle").exit_code == 0
    next((log.root / "0").iterdir()).write_text("a\nc\nb\na\n")
    with open_runner(load_job(job), settings.resolve()) as runner:
        assert [each.txid for each in runner.restate([1], "a bad file", "ana")] == [3]
    return job


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


@pytest.mark.rule("R17", "R19")
@pytest.mark.usefixtures("words")
def test_why_names_every_batch_behind_a_value(txbatch: Txbatch, engine: Engine) -> None:
    said = txbatch("why", "words", "a")
    assert said.exit_code == 0, said.output
    head, first, attempt, read, why, second, *rest = said.stdout.splitlines()
    assert head == "words a: count 2, last 3, changed last by txid 3"
    assert first == "  position 1, counted by txid 3, was count 2, last 1 by txid 1: count 1, last 0"
    assert attempt.startswith("    attempt 3:1 of run cli:")
    assert read == "    read 0 0-2"
    assert why == "    restated by ana: a bad file"
    assert second == "  position 2: count 1, last 3"
    assert rest[-1] == "  2 contributions amount to the value"
    (told,) = rows(txbatch("why", "words", "a", "--json"))
    assert (told["equal"], told["values"]) == (True, {"count": 2, "last": 3})
    gone = txbatch("why", "words", "c").stdout.splitlines()
    assert gone[:2] == [
        "words c: count 1, last 1, changed last by txid 3",
        "  position 1, counted by txid 3: count 1, last 1",
    ]
    assert txbatch("why", "all").stdout.splitlines()[0].startswith("all: mean 1.5")
    refused(txbatch("why", "all", "x"), "one global value and has no key")


def test_why_tells_versions_that_are_equal_once(txbatch: Txbatch, words: str) -> None:
    for _ in range(4):
        assert txbatch("restate", "words", "1", "--why", "again").exit_code == 0
    position = (
        "position 1, counted by txid 7, was count 2, last 1 by txid 1, was count 1, last 0 by 4 txids from 3 to 6"
    )
    assert f"  {position}: count 1, last 0" in txbatch("why", "words", "a").stdout.splitlines()
    (told,) = rows(txbatch("why", "words", "a", "--json"))
    assert [each["txid"] for each in told["versions"]] == [1, 3, 4, 5, 6, 7, 2]


@pytest.mark.usefixtures("words")
def test_why_says_that_a_value_is_not_what_its_contributions_amount_to(txbatch: Txbatch, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE state.words SET count = 7 WHERE line = 'a'"))
    said = txbatch("why", "words", "a")
    assert said.exit_code == 1
    assert "2 contributions do not amount to the value of words a: the state was changed outside" in said.stdout
    assert "`txbatch verify words`" in said.stdout


@pytest.mark.rule("R17", "R19")
@pytest.mark.usefixtures("words")
def test_as_of_before_and_after_a_restate(txbatch: Txbatch, engine: Engine) -> None:
    def counts(*arguments: str) -> dict[object, object]:
        return {row["line"]: row["count"] for row in rows(txbatch("as-of", "words", *arguments, "--json"))}

    assert counts("0") == {}
    assert counts("1") == {"a": 2}
    assert counts("2") == {"a": 3, "b": 1}
    assert counts("3") == {"a": 2, "b": 1, "c": 1}
    assert counts("1", "--corrected") == {"a": 1, "c": 1}
    assert counts("2", "c", "a") == {"c": None, "a": 3}
    assert rows(txbatch("as-of", "words", "2", "c", "--json"))[0]["found"] is False
    with engine.begin() as connection:
        connection.execute(text("UPDATE txbatch.batch SET committed_at = now() - interval '1 day' WHERE txid < 3"))
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    asked = txbatch("as-of", "words", "--at", hour_ago, "a")
    assert asked.stdout.splitlines()[1].split() == ["a", "True", "3", "3", "2"]
    assert asked.stderr.startswith("as of txid 2, the newest at ")
    cut = txbatch("as-of", "words", "3", "--limit", "1")
    assert len(cut.stdout.splitlines()) == 2
    assert "there are more than the 1 keys shown" in cut.stderr
    (mean,) = rows(txbatch("as-of", "all", "1", "--json"))
    assert float(str(mean["mean"])) == 0.5


@pytest.mark.usefixtures("words")
def test_what_has_no_past_says_why_and_what_to_do(txbatch: Txbatch, write_job: WriteJob, engine: Engine) -> None:
    assert txbatch("run", write_job("bare.py", BARE)).exit_code == 0
    for arguments, told in {
        ("why", "nosuch", "a"): "no state 'nosuch' is known; `txbatch status` lists",
        ("why", "words", "zz"): "state 'words' has no key 'zz', and never had: no batch counted one",
        ("why", "words"): "key '' has 0 parts; the state's keys are line",
        (
            "why",
            "bare",
            "a",
        ): "state 'bare' is kept without contributions, so its past is not kept; `txbatch query` has",
        ("as-of", "bare", "1"): "state 'bare' is kept without contributions",
        (
            "as-of",
            "words",
            "9",
        ): "state 'words' cannot be asked as of txid 9: the newest committed one is 3; ask for one of 0 to 3",
        ("as-of", "words", "9", "zz"): "state 'words' cannot be asked as of txid 9",
        ("as-of", "all", "1", "a"): "state 'all' is one global value and has no key; ask without",
    }.items():
        refused(txbatch(*arguments), told)
    both = txbatch("as-of", "all", "1", "--at", "2026-01-01T00:00Z")
    assert both.exit_code == 2
    assert "all is one global value, which has no key, and --at takes the place of TXID: give one" in both.stderr
    assert txbatch("as-of", "words").exit_code == 2
    assert txbatch("as-of", "words", "x").exit_code == 2
    swapped = "INSERT INTO txbatch.rebuild (topology, status, why, job, code, definition, ended_at, swapped_txid, past)"
    with engine.begin() as connection:
        connection.execute(text(f"{swapped} VALUES ('words', 'swapped', 'w', 'j', 'c', '{{}}', now(), 1, '{{}}')"))
    refused(
        txbatch("as-of", "words", "1"),
        "rebuild 1 counted all anew after txid 1, and has what is later; ask report_past_1.as_of_words(1)",
    )
    assert txbatch("as-of", "words", "2", "a").exit_code == 0
    with engine.begin() as connection:
        connection.execute(text("UPDATE txbatch.state SET horizon = 2"))
    refused(txbatch("as-of", "words", "1"), "retention has folded what it was before txid 2; ask for one of 2 to 3")
    with engine.begin() as connection:
        connection.execute(text('DROP VIEW report."words@versions"'))
    refused(txbatch("why", "words", "a"), "its past can be asked once its job has run again")


@pytest.mark.usefixtures("words")
def test_batches_and_status_tell_what_is_counted_again(txbatch: Txbatch, engine: Engine) -> None:
    head, third, second, first, why = txbatch("batches", "words").stdout.splitlines()
    assert head.split()[:4] == ["txid", "status", "restates", "replaced_by"]
    assert [line.split()[:3] for line in (third, second, first)] == [
        ["3", "committed", "1"],
        ["2", "committed", "1"],
        ["1", "committed", "3"],
    ]
    assert why == "3 committed, restates 1 for ana: a bad file"
    with engine.begin() as connection:
        for statement in (
            "UPDATE txbatch.batch SET replaced_by = NULL",
            "UPDATE txbatch.batch SET status = 'emitted', committed_at = NULL, committed_fence = NULL, succeeded_at = NULL"
            " WHERE txid = 3",
        ):
            connection.execute(text(statement))
    assert "words: txid 3 restates txid 1 for ana: a bad file\n" in txbatch("status", "words").stdout


@pytest.mark.rule("R17", "R19")
@pytest.mark.usefixtures("words")
def test_the_same_from_python() -> None:
    reports = Reports(settings.resolve())
    (a,) = reports.as_of("words", 2, ["a"])
    assert (a.key, a.found, a.txid, a.values) == (("a",), True, 2, {"count": 3, "last": 3})
    assert [(each.key, each.values["count"]) for each in reports.as_of("words", 1, corrected=True)] == [
        (("a",), 1),
        (("c",), 1),
    ]
    why = reports.why("words", "a")
    assert (why.values, why.txid, why.equal) == ({"count": 2, "last": 3}, 3, True)
    assert [(v.position, v.txid, v.replaced_by, v.counts, v.reads) for v in why.versions] == [
        (1, 1, 3, False, ["0 0-2"]),
        (1, 3, None, True, ["0 0-2"]),
        (2, 2, None, True, ["0 2-4"]),
    ]
    (restated,) = reports.restatements("words")
    assert (restated.position, restated.txid, restated.replaced_txid) == (1, 3, 1)
    assert (restated.reason, restated.requested_by, restated.records_before, restated.records) == (
        "a bad file",
        "ana",
        2,
        2,
    )
