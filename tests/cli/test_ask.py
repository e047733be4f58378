"""`txbatch ask`: what a query stream answers, without Spark, from a database that a run has filled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import refused
from click.testing import Result

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
JOB = """
topology = Topology("words")
stream = topology.new_stream("words", FixedBatchSpout("word string, size int", 4, *3 * [("cat", 1)], ("dog", 2)))
counts = stream.group_by("word", "size").persistent_aggregate(OpaqueState("words"), count=Count())
words = topology.new_query_stream("words", "args string").flat_map(lambda r: r["args"].split(), "word string")
words.map(lambda r: (r["word"], 1), "word string, size int").state_query(counts, "word", "size").aggregate(total=Sum("count"))
pair = topology.new_query_stream("pair", "word string, size int").state_query(counts, "word", "size")
pair.filter(lambda r: r["count"] is not None)
topology.new_query_stream("fails", "args string").map(lambda r: 1 / 0, "n double")
every = topology.new_query_stream(
    "every", "a bigint, b double, c boolean, d date, e timestamp, f decimal(4,1), g binary, h string"
)
"""


@pytest.fixture
def words(txbatch: Txbatch, write_job: WriteJob) -> str:
    job = write_job("words.py", JOB)
    assert txbatch("run", job).exit_code == 0
    return job


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


@pytest.mark.rule("R20")
def test_questions_are_answered_by_the_job_file_and_by_the_topology(
    txbatch: Txbatch, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [{"args": "a cat cat", "total": 6}, {"args": "dog", "total": None}]
    assert rows(txbatch("ask", words, "words", "a cat cat", "dog", "--json")) == answers
    monkeypatch.chdir(Path(words).parent)
    assert rows(txbatch("ask", "words", "words", "a cat cat", "dog", "--json")) == answers
    assert txbatch("ask", "words", "words", "a cat cat").stdout.splitlines()[1].split() == ["a", "cat", "cat", "6"]


@pytest.mark.usefixtures("words")
def test_a_question_of_several_fields_is_csv_and_no_answer_is_said(txbatch: Txbatch, words: str) -> None:
    assert rows(txbatch("ask", words, "pair", "cat,1", '"dog",2', "cat,2", "--json")) == [
        {"word": "cat", "size": 1, "count": 3},
        {"word": "dog", "size": 2, "count": 1},
    ]
    none = txbatch("ask", words, "pair", "emu,1")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "no answer\n")
    typed = "-7,1.5,true,2026-01-05,2026-01-05T08:00:00Z,1.5,00ff,"
    assert rows(txbatch("ask", words, "every", typed, "--json"))[0]["a"] == -7
    (bare,) = rows(txbatch("ask", words, "every", typed.replace("Z", ""), "--json"))
    assert bare["e"] == rows(txbatch("ask", words, "every", typed, "--json"))[0]["e"]


def test_what_does_not_fit_is_refused_by_name(txbatch: Txbatch, words: str) -> None:
    for arguments, told in {
        ("nosuch", "words", "a"): "no topology 'nosuch'",
        (words, "nosuch", "a"): "topology 'words' has no query stream 'nosuch'; it has words, pair, fails, every",
        (words, "pair", "a"): "query 'pair' takes word string, size int; 'a' has 1 part: write a question as CSV",
        (words, "pair", "a,b"): "query 'pair' takes word string, size int; 'b' is no int",
        (words, "pair", "a,3000000000"): "for 'size', declared int",
        (words, "every", "1,2,maybe,4,5,6,7,8"): "'maybe' is no boolean",
        (
            words,
            "every",
            "1,2,true,2026-01-05,8 o'clock,6,7,8",
        ): "no timestamp: write it like 2026-01-05T08:00:00Z; without",
        (words, "fails", "a"): "query 'fails' of topology 'words': map <lambda> (line ",
    }.items():
        refused(txbatch("ask", *arguments), told)
    assert txbatch("ask", words, "words").exit_code == 2
