"""A join that several states are made of: read and joined once an attempt, with the results of a join for each state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from txbatch import Count, FileSpout, Max, OpaqueState, Sum, Topology
from txbatch.core.errors import TxbatchError
from txbatch.launch import driver
from txbatch.spark.kept_records import SharedJoins

ORDERS, PAYMENTS = ("a Soho", "b Leeds", "c Soho"), ("a 5", "c 2", "c 3", "d 9")


def joined(root: Path, told: Callable[[dict[str, Any]], object]) -> Topology:
    """Three states of the orders joined with their payments."""
    topology = Topology("paid")
    sides = []
    for name, lines, fields in (
        ("orders", ORDERS, "deal string, shop string"),
        ("payments", PAYMENTS, "deal string, amount string"),
    ):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "1.txt").write_text("".join(f"{line}\n" for line in lines))
        read = topology.new_stream(name, FileSpout(root / name))
        sides.append(read.peek(told).map(lambda record: tuple(record["line"].split()), fields))
    both = topology.join(*sides, on="deal", name="both").each("cast(amount as bigint)", "paid bigint")
    both.group_by("shop").persistent_aggregate(OpaqueState("shops"), deals=Count(), paid=Sum("paid"))
    both.group_by("deal").persistent_aggregate(OpaqueState("deals"), most=Max("paid"))
    both.filter("paid > 2").persistent_aggregate(OpaqueState("total"), paid=Sum("paid"))
    return topology


def test_it_is_read_and_joined_once(emit: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def emitted(name: str) -> tuple[Any, int]:
        (root := tmp_path / name).mkdir()
        seen = str(root / "seen")

        def told(record: dict[str, Any]) -> None:
            with open(seen, "a") as file:
                file.write(f"{record['line']}\n")

        found = emit(joined(root, told))
        return found, len(Path(seen).read_text().splitlines())

    once, seen = emitted("once")
    assert seen == len(ORDERS) + len(PAYMENTS)
    assert once.partials == {
        "shops": {("Soho",): (3, 10)},
        "deals": {("a",): (5,), ("c",): (3,)},
        "total": {(): (8,)},
    }
    monkeypatch.setattr(driver.SharedJoins, "of", lambda _: SharedJoins())
    each, seen = emitted("each")
    assert seen == 3 * (len(ORDERS) + len(PAYMENTS))
    assert (each.partials, each.manifest.states.keys()) == (once.partials, once.manifest.states.keys())
    kept = [[state.kept for state in found.manifest.states.values()] for found in (once, each)]
    assert kept[0] == kept[1]


def test_a_function_before_it_that_fails_is_named_with_its_record(emit: Callable[..., Any], tmp_path: Path) -> None:
    def told(record: dict[str, Any]) -> None:
        if record["line"] == "c 3":
            raise ValueError("no such deal")

    with pytest.raises(TxbatchError, match=r"state 'shops'.*no such deal") as caught:
        emit(joined(tmp_path, told))
    assert "c 3" in str(caught.value)
