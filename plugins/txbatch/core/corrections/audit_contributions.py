"""The audit of each batch's contributions to a state, also of batches restated since (R24).

`core` decides; `postgres.corrections.audit` reads. The source of a restated batch is often gone, so the contributions
are compared with the totals staged by the attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from txbatch.core.aggregates.merge import Total
from txbatch.core.batch.manifest import StagedState
from txbatch.core.batch.transaction import BatchKind
from txbatch.core.corrections.audit import Entry
from txbatch.core.definition.stored import StateDefinition
from txbatch.core.topology.persistent_aggregate import PersistentAggregate


@dataclass(frozen=True, slots=True)
class Contributed:
    """A state's contributions from one txid at one position: how many keys, and the total of each column as text."""

    txid: int
    position: int
    keys: int
    totals: Mapping[str, str | None]


def check_contributed(
    aggregate: PersistentAggregate, stored: StateDefinition, horizon: int, entry: Entry | None, found: Contributed
) -> Iterator[str]:
    """Yield contradictions of a txid's contributions to a state. If the txid is not committed, `entry` is None."""
    name = aggregate.state.name
    of = f"contribution.{name} has {found.keys:,} keys of txid {found.txid}"
    if entry is None:
        yield f"{of}, which is not committed"
        return
    if found.position != entry.standing.position:
        yield f"{of} at position {found.position}, which stands for {entry.standing.position}"
    if found.txid <= horizon:
        yield f"{of}, and txbatch.state.horizon says that all up to {horizon} is folded"
    if found.position < stored.joined:
        yield f"{of} at position {found.position}, and txbatch.state.joined says that it counts since {stored.joined}"
    if name not in entry.keys:
        yield f"{of}, and txbatch.batch.keys does not name the state"
    elif _other_number(entry, entry.keys[name], found.keys, removable=aggregate.removable):
        yield f"{of}, txbatch.batch.keys says {entry.keys[name]:,}"
    yield from _totals(aggregate, stored, entry, found, of)


def _other_number(entry: Entry, said: int, found: int, *, removable: bool) -> bool:
    """True if a batch had another number of keys than the batch's contributions.

    A restate also counts the keys of the replaced version, and does not count keys removed by a later position.
    """
    if entry.replaced_in_rebuild or (removable and entry.standing.kind is BatchKind.RESTATE):
        return False
    return said < found if entry.standing.kind is BatchKind.RESTATE and entry.rebuilt is None else said != found


def _totals(
    aggregate: PersistentAggregate, stored: StateDefinition, entry: Entry, found: Contributed, of: str
) -> Iterator[str]:
    staged = entry.manifest.states.get(aggregate.state.name) if entry.manifest else None
    uncounted = stored.uncounted(aggregate, found.position)
    for column in aggregate.partial_columns:
        total = found.totals[column.name]
        if column.name in uncounted:
            if total not in (None, "0"):
                yield f"{of} with values in {column.name!r}, which txbatch.state.values_since says counts only later"
        elif staged is not None and not _as_staged(staged, column.name, column.partial.total, found):
            yield f"{of} whose total of {column.name!r} is {total}, its attempt staged {staged.totals[column.name]}"


def _as_staged(staged: StagedState, column: str, total: Total, found: Contributed) -> bool:
    """True if a total is as staged, or not comparable: the column had another name, or several rows of a key became one row."""
    if column not in staged.totals or (total is not Total.SUM and staged.rows != found.keys):
        return True
    return _same(staged.totals[column], found.totals[column])


def _same(one: str | None, other: str | None) -> bool:
    """True for equal numbers, in whatever scale."""
    try:
        return one == other or (one is not None and other is not None and Decimal(one) == Decimal(other))
    except InvalidOperation:
        return False
