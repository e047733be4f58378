"""Removal of keys against a recomputation: the value is the fold of what counts after the last removal (R9, R18, R21)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbatch.core.aggregates.merge import ADD as SUM
from txbatch.core.aggregates.merger import Merger
from txbatch.core.state.state import StateKind
from txbatch.core.state.update import Change, Updater

ADD = Merger([SUM])
# A partial: what counts (None: nothing), whether the key is removed. Neither is no partial at all.
CHANGES = st.tuples(st.none() | st.integers(1, 9), st.booleans()).filter(lambda each: each != (None, False))
BATCHES = st.lists(st.lists(st.tuples(st.sampled_from("abc"), CHANGES), max_size=5), max_size=6)
Rows = dict[str, Any]


def changes(batch: Any) -> dict[str, Change]:
    found: dict[str, Change] = {}
    for key, (value, removed) in batch:
        change = Change((value,), removed, value is not None)
        found[key] = found[key].also(change, ADD) if key in found else change
    return found


def applied(kind: StateKind, rows: Rows, batch: Any, txid: int, *, apart: bool = False) -> Rows:
    return Updater(kind, ADD, apart).update(rows, changes(batch), txid).applied(rows)


def shown(rows: Rows) -> dict[str, int]:
    return {key: row.value[0] for key, row in rows.items() if row.value is not None}


def recomputed(batches: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for batch in batches:
        for key in {key for key, (_, removed) in batch if removed}:
            found.pop(key, None)
        for key, (value, _) in batch:
            if value is not None:
                found[key] = found.get(key, 0) + value
    return found


@pytest.mark.parametrize("kind", list(StateKind))
@given(batches=BATCHES)
def test_state_is_the_fold_since_the_last_removal(kind: StateKind, batches: Any) -> None:
    rows: Rows = {}
    for txid, batch in enumerate(batches, 1):
        rows = applied(kind, rows, batch, txid)
        assert all(row.value is not None for row in rows.values()), "a tombstone in the ledger's own database"
    assert shown(rows) == recomputed(batches)


@given(batches=BATCHES, failed=BATCHES)
def test_what_failed_attempts_wrote_apart_leaves_no_trace(batches: Any, failed: Any) -> None:
    """Before each batch an attempt of the same txid, with other records, is applied: the newest attempt alone counts."""
    rows: Rows = {}
    for txid, batch in enumerate(batches, 1):
        if txid <= len(failed):
            rows = applied(StateKind.OPAQUE, rows, failed[txid - 1], txid, apart=True)
        rows = applied(StateKind.OPAQUE, rows, batch, txid, apart=True)
        assert shown(rows) == recomputed(batches[:txid])
        assert all(row.txid == txid for row in rows.values() if row.value is None), "a tombstone that outlived its txid"
    assert shown(applied(StateKind.OPAQUE, rows, [], len(batches), apart=True)) == recomputed(batches[:-1])


@given(batches=BATCHES)
def test_a_replay_apart_of_a_transactional_batch_changes_nothing(batches: Any) -> None:
    rows: Rows = {}
    for txid, batch in enumerate(batches, 1):
        rows = applied(StateKind.TRANSACTIONAL, rows, batch, txid, apart=True)
        assert applied(StateKind.TRANSACTIONAL, rows, batch, txid, apart=True) == rows
    assert shown(rows) == recomputed(batches)
