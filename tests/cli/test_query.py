"""`txbatch query`: many keys at once, whatever they are named and typed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
TYPED = """
from datetime import UTC, date, datetime
from decimal import Decimal
topology = Topology("typed")
stream = topology.new_stream("in", FixedBatchSpout(
    "text string, number int, big bigint, day date, moment timestamp, price decimal(10,2), flag boolean", 9,
    ("a,b", 7, 2**40, date(2013, 1, 1), datetime(2013, 1, 1, 5, tzinfo=UTC), Decimal("1.50"), True),
    ("", -1, -2**40, date(1, 1, 1), datetime(1970, 1, 1, tzinfo=UTC), Decimal("-0.05"), False)))
"""
for_key = 'stream.group_by("{0}").persistent_aggregate(OpaqueState("by_{0}"), count=Count())\n'
KEYS = ["text", "number", "big", "day", "moment", "price", "flag"]


def ask(txbatch: Txbatch, *arguments: str) -> list[dict[str, object]]:
    result = txbatch("query", "--json", *arguments)
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


@pytest.fixture
def typed(txbatch: Txbatch, write_job: WriteJob) -> Txbatch:
    composite = 'stream.group_by("text", "day").persistent_aggregate(OpaqueState("pairs"), count=Count())\n'
    job = write_job("typed.py", TYPED + "".join(map(for_key.format, KEYS)) + composite)
    assert txbatch("run", job).exit_code == 0
    return txbatch


@pytest.mark.rule("R20")
@pytest.mark.parametrize(
    ("state", "present", "absent"),
    [
        ("by_text", ["a,b", ""], ["A,B", " "]),
        ("by_number", ["7", "-1", "+7"], ["8"]),
        ("by_big", ["1099511627776"], ["1099511627777"]),
        ("by_day", ["2013-01-01", "0001-01-01"], ["2013-01-02"]),
        ("by_moment", ["2013-01-01T05:00:00Z", "2013-01-01 00:00:00-05"], ["2013-01-01T05:00:00.000001Z"]),
        ("by_price", ["1.5", "1.50", "-0.05"], ["1.504", "1.496"]),
        ("by_flag", ["true", "false", "yes"], []),
    ],
)
def test_typed_keys(typed: Txbatch, state: str, present: list[str], absent: list[str]) -> None:
    found = ask(typed, state, *present, *absent)
    assert [row["found"] for row in found] == [True] * len(present) + [False] * len(absent)
    assert [row["count"] for row in found] == [1] * len(present) + [None] * len(absent)
    assert [row["txid"] for row in found] == [1] * len(present) + [None] * len(absent)
    assert [row[state.removeprefix("by_")] for row in found] == present + absent


@pytest.mark.rule("R20")
def test_keys_of_several_columns_are_csv(typed: Txbatch) -> None:
    found = ask(typed, "pairs", '"a,b",2013-01-01', ",0001-01-01", "x,2013-01-01")
    assert [(row["text"], row["day"], row["found"]) for row in found] == [
        ("a,b", "2013-01-01", True),
        ("", "0001-01-01", True),
        ("x", "2013-01-01", False),
    ]


@pytest.mark.parametrize(
    ("state", "key", "told"),
    [
        ("by_number", "abc", 'key number int; invalid input syntax for type integer: "abc"'),
        ("by_number", "99999999999", 'key number int; value "99999999999" is out of range for type integer'),
        ("by_number", "", 'key number int; invalid input syntax for type integer: ""'),
        ("by_day", "someday", 'key day date; invalid input syntax for type date: "someday"'),
        ("by_day", "2013-13-01", 'key day date; date/time field value out of range: "2013-13-01"'),
        ("by_moment", "noon", "key moment timestamp; invalid input syntax"),
        ("by_price", "cheap", "key price decimal(10,2); invalid input syntax for type numeric"),
        ("by_flag", "maybe", "key flag boolean; invalid input syntax for type boolean"),
        ("pairs", "a", "key 'a' has 1 part; the state's keys are text, day: write them as CSV"),
        ("pairs", "", "key '' has 0 parts; the state's keys are text, day: write them as CSV"),
        ("pairs", "a,b,c", "key 'a,b,c' has 3 parts"),
        ("nosuch", "a", "no state 'nosuch' is known; `txbatch status` lists the topologies with their states"),
    ],
)
def test_a_key_that_cannot_be_one(typed: Txbatch, state: str, key: str, told: str) -> None:
    result = typed("query", state, key)
    assert (result.exit_code, result.stdout) == (1, "")
    assert told in result.stderr
    error, *advice = result.stderr.splitlines()
    assert error.startswith("txbatch: TX")
    assert all(line.startswith("  ") for line in advice)


ODD = [
    "select",
    "Ünïcode",
    'a"b',
    "with blank",
    "tick`tick",
    "co:lon :and ::two",
    "per%cent %s %(k0)s",
    "back\\slash",
    "it's",
]


@pytest.mark.parametrize("name", ODD)
def test_names_that_need_quotes(txbatch: Txbatch, write_job: WriteJob, name: str) -> None:
    field = "`" + name.replace("`", "``") + "`"
    job = write_job(
        "odd.py",
        f'topology = Topology("odd")\n'
        f'stream = topology.new_stream("in", FixedBatchSpout({field + " string, n int"!r}, 9, ("x", 4)))\n'
        f"stream.group_by({name!r}).persistent_aggregate(OpaqueState({name!r}), **{{{name + '2'!r}: Sum('n')}})\n",
    )
    assert txbatch("run", job).exit_code == 0
    assert ask(txbatch, name, "x", "y") == [
        {name: "x", "found": True, name + "2": 4, "txid": 1},
        {name: "y", "found": False, name + "2": None, "txid": None},
    ]
    assert name in txbatch("query", name, "x").stdout


def test_columns_named_as_the_answer_is(txbatch: Txbatch, write_job: WriteJob) -> None:
    job = write_job(
        "found.py",
        'topology = Topology("t")\nstream = topology.new_stream("in", FixedBatchSpout("k0 string, n int", 9, ("x", 4)))\n'
        'stream.group_by("k0").persistent_aggregate(OpaqueState("s"), found=Sum("n"), k1=Count())\n',
    )
    assert txbatch("run", job).exit_code == 0
    assert ask(txbatch, "s", "x", "y") == [
        {"k0": "x", "is_found": True, "found": 4, "k1": 1, "txid": 1},
        {"k0": "y", "is_found": False, "found": None, "k1": None, "txid": None},
    ]


def test_a_key_cannot_do_anything_to_a_terminal(txbatch: Txbatch, write_job: WriteJob) -> None:
    job = write_job(
        "keys.py",
        'topology = Topology("t")\n'
        'stream = topology.new_stream("in", FixedBatchSpout("k string", 9, "[red]x[/red]", "\\x1b[31m\\n"))\n'
        'stream.group_by("k").persistent_aggregate(OpaqueState("s"), count=Count())\n',
    )
    assert txbatch("run", job).exit_code == 0
    printed = txbatch("query", "s", "[red]x[/red]", "\x1b[31m\n").stdout
    assert "[red]x[/red]" in printed
    assert '"\\u001b[31m\\n"' in printed
    assert "\x1b" not in printed


@pytest.mark.rule("R20")
def test_a_global_value_is_asked_for_without_a_key(txbatch: Txbatch, write_job: WriteJob) -> None:
    job = """
topology = Topology("sums")
stream = topology.new_stream("in", FixedBatchSpout("n int", 2, 1, 2, 3))
stream.persistent_aggregate(OpaqueState("100% all"), total=Sum("n"), mean=Avg("n"))
stream.group_by("n").persistent_aggregate(OpaqueState("by_n"), count=Count())
"""
    path = write_job("sums.py", job)
    for expected in (["3", "1.5"], ["6", "2.0"]):
        assert txbatch("run", path).exit_code == 0
        (row,) = ask(txbatch, "100% all")
        assert [row["found"], row["total"], str(row["mean"])[:3]] == [True, int(expected[0]), expected[1]]
    assert "only" not in row
    assert row["txid"] == 2
    assert "100%" not in txbatch("query", "100% all").stderr
    told = txbatch("query", "100% all", "x")
    assert told.exit_code == 1
    assert "state '100% all' is one global value and has no key; ask without x" in told.stderr
    missing = txbatch("query", "by_n")
    assert missing.exit_code == 1
    assert "state 'by_n' has the key n int; name at least one" in missing.stderr


def test_keys_and_values_named_as_the_answer_is(txbatch: Txbatch, write_job: WriteJob) -> None:
    spout = 'FixedBatchSpout("found string, n bigint", 9, ("dog", 7))'
    job = write_job(
        "named.py",
        f'topology = Topology("t")\nstream = topology.new_stream("in", {spout})\n'
        'stream.group_by("found").persistent_aggregate(OpaqueState("s"), is_found=Sum("n"))\n'
        'stream.persistent_aggregate(OpaqueState("all"), found=Count())\n',
    )
    assert txbatch("run", job).exit_code == 0
    assert ask(txbatch, "s", "dog", "cat") == [
        {"found": "dog", "is_is_found": True, "is_found": 7, "txid": 1},
        {"found": "cat", "is_is_found": False, "is_found": None, "txid": None},
    ]
    (row,) = ask(txbatch, "all")
    assert (row["is_found"], row["found"]) == (True, 1)
