"""Query streams (Trident's DRPC): questions answered from the states, in both twins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from support import LogSpout

from txbatch import Avg, Count, Max, Min, OpaqueState, StaticState, Sum, Topology
from txbatch.core.errors import TerminalError
from txbatch.core.topology.query_stream import QueryStream
from txbatch.memory.ask import ask
from txbatch.memory.ledger import MemoryLedger
from txbatch.reports import Reports
from txbatch.settings import Settings

pytestmark = pytest.mark.rule("R20")
Ask = Callable[..., list[list[dict[str, Any]]]]
THREE = {"the": (3, 4, 2), "cat": (2, None, 0), "dog": (1, 7, 1)}


class Words:
    """A topology that counts words, and what is asked of it."""

    def __init__(self, backing: Any, database: str | None = None, **words: tuple[Any, ...]) -> None:
        self.backing, self.topology, spout = backing, Topology("words"), LogSpout({"a": 1_000})
        spout.fields = "word string, size int"
        self.stream = self.topology.new_stream("words", spout)
        state = OpaqueState("words", database=database)
        self.counts = self.stream.group_by("word").persistent_aggregate(
            state, remove=lambda r: False, count=Count(), mean=Avg("size")
        )
        self.total = self.stream.persistent_aggregate(OpaqueState("total", database=database), records=Count())
        if words:
            self.counts_words("1", **words)

    def counts_words(self, name: str, **words: tuple[Any, ...]) -> None:
        keyed = [((word,), (*partial, False, True)) for word, partial in words.items()]
        total = [((), (sum(count for count, *_ in words.values()),))]
        self.backing.whole(self.topology, {"words": keyed, "total": total}, name)

    def query(self, fields: str = "args string") -> QueryStream:
        return self.topology.new_query_stream("asked", fields)

    def split(self) -> Any:
        return self.query().flat_map(lambda r: r["args"].split(), "word string")

    def ask(self, *questions: Any, name: str = "asked") -> list[list[dict[str, Any]]]:
        if isinstance(self.backing.ledger, MemoryLedger):
            return ask(self.backing.ledger, self.topology, name, questions)
        url = self.backing.engine.url.render_as_string(hide_password=False)
        reports = Reports(Settings(Path("/nowhere"), url, "file:///nowhere", connections=self.backing.databases))
        return reports.ask(self.topology, name, questions)


def test_each_question_is_answered_by_itself_from_what_is_counted(backing: Any) -> None:
    words = Words(backing, **THREE)
    found = words.split().state_query(words.counts, "word").filter(lambda r: r["count"] is not None)
    found.aggregate(total=Sum("count"), words=Count())
    assert words.ask("the cat", "the emu", "emu", "", "the the") == [
        [{"total": 5, "words": 2}],
        [{"total": 3, "words": 1}],
        [{"total": None, "words": 0}],
        [{"total": None, "words": 0}],
        [{"total": 6, "words": 2}],
    ]
    assert words.ask() == []
    words.counts_words("2", cat=(5, None, 0))
    assert words.ask("the cat") == [[{"total": 10, "words": 2}]]


def test_absent_keys_and_null_ones_have_nulls(backing: Any) -> None:
    words = Words(backing, **THREE)
    words.query("word string").state_query(words.counts, "word", fields=["count"])
    assert words.ask("cat", "emu", None) == [
        [{"word": "cat", "count": 2}],
        [{"word": "emu", "count": None}],
        [{"word": None, "count": None}],
    ]


def test_an_inner_look_up_leaves_absent_keys_out(backing: Any) -> None:
    words = Words(backing, **THREE)
    words.split().state_query(words.counts, "word", fields="count", how="inner")
    assert words.ask("cat emu dog", "emu") == [[{"word": "cat", "count": 2}, {"word": "dog", "count": 1}], []]


def test_every_operation_works_on_the_records_of_a_question(backing: Any) -> None:
    words, seen = Words(backing, **THREE), []
    asked = words.split().distinct().peek(seen.append).state_query(words.counts, "word").repartition(2)
    asked = asked.each(lambda r: [len(r["word"]), 0], "size int").map(
        lambda r: (r["word"], r["count"], r["size"]), "word string, count bigint, size int"
    )
    asked.group_by("size").first_n(2, "count", descending=True).project("word", "size")
    (found,) = words.ask("the the cat dog")
    assert sorted(found, key=str) == [
        {"word": "cat", "size": 0},
        {"word": "cat", "size": 3},
        {"word": "the", "size": 0},
        {"word": "the", "size": 3},
    ]
    assert [each["word"] for each in seen] == ["the", "cat", "dog"]
    words = Words(backing)
    words.split().state_query(words.counts, "word").group_by("count").aggregate(
        least=Min("word"), most=Max("word", where=lambda r: r["word"] != "the"), mean=Avg("count")
    )
    assert sorted(words.ask("the cat dog the")[0], key=lambda r: r["count"]) == [
        {"count": 1, "least": "dog", "most": "dog", "mean": Decimal(1)},
        {"count": 2, "least": "cat", "most": "cat", "mean": Decimal(2)},
        {"count": 3, "least": "the", "most": None, "mean": Decimal(3)},
    ]
    words = Words(backing)
    words.split().state_query(words.counts, "word").max_by("count")
    assert [row["word"] for (row,) in words.ask("cat the", "dog cat")] == ["the", "cat"]


def test_finished_values_have_their_types_and_a_static_state_is_looked_up_too(backing: Any) -> None:
    words = Words(backing, **THREE)
    titles = words.topology.new_static_state(
        StaticState("titles", [("the", "an article")], "word string, title string")
    )
    words.query("word string").state_query(words.counts, "word").state_query(titles, "word")
    (the,), (cat,) = words.ask("the", "cat")
    assert the == {"word": "the", "count": 3, "mean": Decimal("2.000000"), "title": "an article"}
    assert str(the["mean"]) == "2.000000"
    assert cat == {"word": "cat", "count": 2, "mean": None, "title": None}


def test_a_global_value_and_a_query_without_a_state(backing: Any) -> None:
    words = Words(backing, **THREE)
    words.query("a int, b string").state_query(words.total).project("b", "records")
    assert words.ask((1, "x"), [2, None]) == [[{"b": "x", "records": 6}], [{"b": None, "records": 6}]]
    words.topology.new_query_stream("plain", "args string")
    assert words.ask("how", name="plain") == [[{"args": "how"}]]


def test_a_state_that_was_never_counted_is_unknown(backing: Any) -> None:
    words = Words(backing)
    words.query("word string").state_query(words.counts, "word")
    with refused("TX401", "'words'"):
        words.ask("the")


@pytest.mark.rule("R21")
def test_states_apart_are_asked_where_they_are(backing: Any) -> None:
    words = Words(backing, "warehouse", **THREE)
    words.query("word string").state_query(words.counts, "word", fields="count").state_query(words.total)
    assert words.ask("dog") == [[{"word": "dog", "count": 1, "records": 6}]]
    words = Words(backing, "warehouse")
    here = words.stream.persistent_aggregate(OpaqueState("here"), records=Count())
    both = words.query("word string").state_query(words.counts, "word", fields="count")
    with refused("TX107", "'here'", "'words'"):
        both.state_query(here)


@pytest.mark.rule("R19")
def test_one_question_sees_one_moment_whatever_is_committed_meanwhile(backing: Any) -> None:
    words, again = Words(backing, **THREE), [True]

    def commits(record: Mapping[str, Any]) -> str:
        if again.pop():
            words.counts_words("2", the=(1, None, 0), cat=(1, None, 0))
            again.append(False)
        else:
            again.append(False)
        return "cat"

    first = words.query("word string").state_query(words.counts, "word", fields="count")
    first.map(lambda r: (r["count"], commits(r)), "before bigint, word string").state_query(
        words.counts, "word", fields="count"
    )
    assert words.ask("the", "the") == [[{"before": 3, "word": "cat", "count": 2}]] * 2
    assert words.ask("the") == [[{"before": 4, "word": "cat", "count": 3}]]


def test_a_function_that_fails_names_query_function_and_question(backing: Any) -> None:
    def first_letter(record: Mapping[str, Any]) -> str:
        return str(record["args"][0])

    words = Words(backing, **THREE)
    words.query().each(first_letter, "letter string")
    told = r"each first_letter \(line \d+ of test_queries.py\) failed for args '': IndexError: "
    with pytest.raises(TerminalError, match=rf"^TX307 \(no retry helps\): query 'asked' of topology 'words': {told}"):
        words.ask("the", "")
    words = Words(backing)
    words.query().map(lambda r: r["args"], "size int")
    with refused("TX307", "lambda", "'the'"):
        words.ask("the")
    words = Words(backing)
    words.query().map(lambda r: (1, 2), "size int")
    with refused("TX307", "lambda", "'the'", "1", "2"):
        words.ask("the")
    words = Words(backing)
    words.topology.show_records, words.topology.quarantine = False, 10
    words.query().each(first_letter, "letter string")
    with refused("TX307", "first_letter", "test_queries", "IndexError"):
        words.ask("")


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (3, "'args', declared string"),
        (("a", "b"), "takes args string; ('a', 'b') has 2"),
        ((), "takes args string; () has 0"),
    ],
)
def test_a_question_of_another_shape_is_refused(backing: Any, question: Any, told: str) -> None:
    words = Words(backing)
    words.query()
    with pytest.raises(TerminalError) as error:
        words.ask("the", question)
    assert error.value.text.startswith("query 'asked' of topology 'words'")
    assert told in str(error.value)


def test_an_unknown_query_names_those_that_there_are(backing: Any) -> None:
    words = Words(backing)
    with refused("TX401", "'words'", "'nosuch'"):
        words.ask("the", name="nosuch")
    words.query()
    with refused("TX401", "'nosuch'"):
        words.ask("the", name="nosuch")


@pytest.mark.rule("R23")
def test_a_query_stream_is_no_change_of_what_is_counted(backing: Any) -> None:
    words = Words(backing, **THREE)
    again = Words(backing)
    again.split().state_query(again.counts, "word")
    backing.ledger.register(again.topology, "jobs/job.py")
    assert again.ask("the")[0][0]["count"] == 3
    assert backing.ledger.change(again.topology, "jobs/job.py", "none") == []
    again.counts_words("2", the=(1, None, 0))
    assert words.topology.source == again.topology.source
