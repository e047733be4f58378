"""Random histories of corrections against the model that keeps everything, and wrong ledgers that it must find out.

A thousand on the twin, twenty thousand in `make test-all`, `CORRECTIONS=200000` in `make soak`; a fortieth of them on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from model import places
from model.corrections import History, drawn, found_wrong, shortest
from model.folded import Folded, drawn_folded
from model.places import Place, Real, Twin
from sizes import some_of
from sqlalchemy import Engine

from txbatch.core.aggregates.merger import Merger
from txbatch.core.batch.transaction import BatchKind, BatchStatus
from txbatch.core.protocol import restate
from txbatch.core.state.fold import fold
from txbatch.memory import update
from txbatch.memory.tables import Tables

HISTORIES = some_of(1_000, 20_000, "CORRECTIONS")


def tell(seed: int, place: Callable[[], Place], name: str = "t") -> Folded:
    """Fail with the shortest part of the history of a seed that fails as well; every fourth one is folded on its way."""
    shape, steps = drawn(seed) if seed % 4 else drawn_folded(seed)
    history = Folded(place(), name, shape)
    error = found_wrong(history, steps)
    if error is not None:
        names = (f"{name}_{number}" for number in range(10_000))
        least = shortest(steps, lambda part: found_wrong(Folded(place(), next(names), shape), part) is not None)
        pytest.fail(f"seed {seed}: {shape}\n{error}\nThe shortest that fails: {least}")
    return history


def tell_all(number: int, place: Callable[[], Place]) -> str:
    """Tell so many, and return what they had; no sample is as empty as it could be."""
    counted = restated = folded = 0
    for seed in range(number):
        told = tell(seed, place, f"t{seed}")
        versions, folded = told.kept.versions.values(), folded + (told.horizon > 0)
        counted += len(versions)
        restated += sum(each.txid != each.position for each in versions)
    assert restated > number / 4
    assert folded > number / 20
    return f"{number:,} histories: {counted:,} batches committed, {restated:,} of them restates; {folded:,} folded"


@pytest.mark.rule("R16", "R17", "R18", "R19", "R22")
@pytest.mark.timeout(0 if HISTORIES > 20_000 else 900)
def test_histories_on_the_twin(capsys: pytest.CaptureFixture[str]) -> None:
    said = tell_all(HISTORIES, Twin)
    with capsys.disabled():
        print(f"\n{said}")


@pytest.mark.rule("R16", "R17", "R18", "R19", "R22")
@pytest.mark.timeout(0 if HISTORIES > 20_000 else 900)
def test_histories_on_postgresql(engine: Engine) -> None:
    place = Real(engine)
    tell_all(HISTORIES // 40, lambda: place)


# ---- ledgers that are wrong on purpose

HEADS, RECORD, FOLDED_AGAIN = Tables.heads, Tables.record, update._folded_again


def _min_and_max_only_grow(self: Tables, aggregate: Any, stored: Any, batch: Any) -> Any:
    """Subtract where one can, and keep the rest."""
    found, combine = FOLDED_AGAIN(self, aggregate, stored, batch), Merger(aggregate.merges)
    for key, change in found.items():
        if key in stored.rows and change.counted:
            both = combine(stored.rows[key].value, change.partial)
            kept = [
                old if column.value in ("min", "max") else new
                for column, old, new in zip(aggregate.columns, both, change.partial, strict=True)
            ]
            found[key] = replace(change, partial=tuple(kept))
    return found


def _newest_of_each_key(base: Any, contributions: Any, combine: Any, at: int | None = None) -> Any:
    """A version counts for the keys that no newer one has."""
    of: dict[int, list[Any]] = {}
    for each in sorted(contributions, key=lambda each: each.txid):
        of.setdefault(each.position, []).append(each)
    newer = [replace(old, replaced_by=new.txid) for each in of.values() for old, new in pairwise(each)]
    return fold(base, [*newer, *(replace(each[-1], replaced_by=None) for each in of.values())], combine, at)


def _offsets_move(self: Tables, batch: Any, manifest: Any) -> Any:
    at = batch.topology, batch.txid
    RECORD(self, replace(batch, kind=BatchKind.ORDINARY), manifest)
    self.batches[at] = replace(self.batches[at], kind=batch.kind)
    return self.batches[at]


def _in_the_place_of_the_first(self: Tables, replaced: int, batch: Any) -> None:
    first = self.batches[batch.topology, batch.position]
    self.batches[batch.topology, batch.position] = replace(first, replaced_by=batch.txid)


def _where_the_value_stays_so_does_the_txid(self: Tables, aggregate: Any, stored: Any, batch: Any) -> Any:
    found = FOLDED_AGAIN(self, aggregate, stored, batch)
    values = {key: row.value for key, row in stored.rows.items()}
    return {key: change for key, change in found.items() if not change.counted or values.get(key) != change.partial}


def _follows_a_restate(self: Tables, topology: str, runs: Any) -> Any:
    alive = [each for each in self.batches_of(topology) if each.status is not BatchStatus.ABORTED]
    return [replace(head, prev=alive[-1] if alive else None) for head in HEADS(self, topology, runs)]


def _as_of_what_counts_now(base: Any, contributions: Any, combine: Any, at: int | None = None) -> Any:
    """The past in today's versions."""
    return fold(base, [each for each in contributions if each.replaced_by is None], combine, at)


WRONG: dict[str, tuple[Any, str, Any]] = {
    "min and max are not folded again": (update, "_folded_again", _min_and_max_only_grow),
    "the newest version of each key counts": (update, "fold", _newest_of_each_key),
    "a restate moves offsets": (Tables, "record", _offsets_move),
    "a restate takes the place of the first version": (Tables, "take_place", _in_the_place_of_the_first),
    "a value that stays keeps its txid": (update, "_folded_again", _where_the_value_stays_so_does_the_txid),
    "a batch follows a restate": (Tables, "heads", _follows_a_restate),
    "holes are read by the restate": (restate, "ranges_again", lambda stream, planned, version: planned),
    "as-of has today's versions": (places, "fold", _as_of_what_counts_now),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_ledger_is_found_out(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WRONG[wrong])
    for seed in range(1000):
        shape, steps = drawn(seed)
        if found_wrong(History(Twin(), "t", shape), steps) is not None:
            return
    pytest.fail("a thousand histories did not see it")
