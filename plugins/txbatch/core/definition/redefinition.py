"""The consequences of a changed definition (R23): a change in place, a change from now on, or a rebuild.

`value_changes` yields the changes to a state's values without counting again, as steps. Differences from the stored columns
that `after_step` does not remove are left for a rebuild.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.value_columns import columns_by_value
from txbatch.core.topology.persistent_aggregate import PersistentAggregate, ValueColumn

# A type, and the wider types that hold each value unchanged.
_WIDER = {"smallint": {"int", "bigint"}, "int": {"bigint"}, "float": {"double"}}
# The parts of a plan or a manifest with streams for keys.
_BY_STREAM = ("streams", "idle", "unreadable", "watermark", "base")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class DropValue:
    """A value goes, with all counts of the value."""

    state: str
    value: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameValue:
    """A value has another name, and so has each column of the value."""

    state: str
    value: str
    was: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """A column has a type that holds more."""

    state: str
    column: str
    type: str


@dataclass(frozen=True, slots=True)
class AddValue:
    """A value counts from the next txid on, and is null before. `columns` are names, types and merges."""

    state: str
    value: str
    columns: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class KeepContributions:
    """A state keeps contributions from now on; the counts so far are the base (R22)."""

    state: str


@dataclass(frozen=True, slots=True)
class Prune:
    """Rows of a state go, or stay, when retention folds the rows' batches (R22)."""

    state: str


@dataclass(frozen=True, slots=True)
class DropState:
    """A state goes, with all counts."""

    state: str


@dataclass(frozen=True, slots=True)
class AddState:
    """A state counts from the next txid on."""

    state: str


@dataclass(frozen=True, slots=True)
class RenameState:
    """A state has another name, and so have the state's reports."""

    state: str
    was: str

    def within(self, value: Metadata) -> Metadata:
        """Return the JSON of a plan or manifest with the state's new name, if the plan looks the state up."""
        cuts = value.get("as_of", {})
        if self.was not in cuts:
            return value
        return {**value, "as_of": {self.state if name == self.was else name: cut for name, cut in cuts.items()}}


@dataclass(frozen=True, slots=True)
class RenameTopology:
    """The topology has another name."""

    was: str


@dataclass(frozen=True, slots=True)
class RenameStream:
    """A stream has another name, also in the plans and manifests of batches."""

    stream: str
    was: str

    def of(self, name: str) -> str:
        """Return the new name of a stream."""
        return self.stream if name == self.was else name

    def within(self, value: Metadata) -> Metadata:
        """Return the JSON of a plan or manifest with the stream's new name."""
        parts = {part: value[part] for part in _BY_STREAM if part in value}
        return {**value, **{part: {self.of(name): each for name, each in of.items()} for part, of in parts.items()}}


@dataclass(frozen=True, slots=True)
class Define:
    """No count changes, only the stored definition."""


ValueStep = DropValue | RenameValue | WidenColumn | AddValue
OfState = ValueStep | KeepContributions | Prune | DropState | AddState | RenameState
Step = OfState | RenameTopology | RenameStream | Define


@dataclass(frozen=True, slots=True)
class InPlace:
    """A change applied to the present rows, without counting again."""

    what: str
    step: Step


@dataclass(frozen=True, slots=True)
class FromNowOn:
    """A change that holds from the next txid on; older rows stay the same, or are null."""

    what: str
    step: Step


@dataclass(frozen=True, slots=True)
class NeedsRebuild:
    """A change that counts all history differently. If `joins`, a job could also declare the change from now on."""

    what: str
    joins: bool = False


REBUILD = "rebuild"
Redefinition = InPlace | FromNowOn | NeedsRebuild


def how(change: Redefinition) -> str:
    """Return the consequence of a change, in one to three words."""
    match change:
        case InPlace():
            return "in place"
        case FromNowOn():
            return "from now on"
        case NeedsRebuild():
            return REBUILD
        case _:
            assert_never(change)


def steps_of(found: Sequence[Redefinition]) -> list[Step]:
    """Return the steps for the present states, without changes that need a rebuild."""
    return [each.step for each in found if not isinstance(each, NeedsRebuild)]


def ways(topology: str, job: str, found: Sequence[Redefinition], way_out: str) -> str:
    """Return the first way out of changes, in words; `way_out` is the text for changes that need a rebuild."""
    kinds = {
        kind: [each.what for each in found if how(each) == kind] for kind in ("in place", "from now on", "rebuild")
    }
    told = {kind: whats for kind, whats in kinds.items() if whats}
    by_kind = "; ".join(f"{kind}: {', '.join(whats)}" for kind, whats in told.items())
    if "rebuild" not in told:
        applied = next(iter(told)) if len(told) == 1 else by_kind
        return (
            f"Put the old definition back; or `txbatch change {job} --why '...' --yes` applies it to {topology!r}, {applied}, "
            "with no record counted again"
        )
    joins = any(isinstance(each, NeedsRebuild) and each.joins for each in found)
    hint = f'Give what is new since="now", and it counts from now on{_renamed_told(found)}. ' if joins else ""
    return f"{f'Of this, {by_kind}. ' if len(told) > 1 else ''}{hint}{way_out}"


def _renamed_told(found: Sequence[Redefinition]) -> str:
    """Return a hint that a new value or state may be a renamed one; empty if nothing is gone."""
    gone = [
        step.value if isinstance(step, DropValue) else step.state
        for step in steps_of(found)
        if isinstance(step, DropValue | DropState)
    ]
    if not gone:
        return ""
    was = gone[0] if len(gone) == 1 else "..."
    return f'; if only the name changed, say was="{was}" to keep the counted values'


def widens(before: str, now: str) -> bool:
    """True if the type `now` holds more than the type `before`, and each value unchanged."""
    decimals = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(now)
    if None in decimals:
        return now in _WIDER.get(before, ())
    (digits, scale), (more, longer) = (map(int, each.groups()) for each in decimals if each)
    return before != now and longer >= scale and more - longer >= digits - scale


def value_changes(aggregate: PersistentAggregate, stored: Metadata) -> Iterator[InPlace | FromNowOn]:
    """Yield the changes to a state's values without counting again: dropped values first, new values last."""
    state, own = aggregate.state.name, _own(aggregate)
    known = stored.get("aggregates") or _values(own, stored)
    renamed = {step.value: step for step in _in_turn(list(_renamed(aggregate, stored, known)))}
    kept = {*renamed, *(known.keys() & own.keys())}
    for dropped in _dropped(state, stored, known, own, renamed):
        yield InPlace(f"value {dropped.value!r} of state {state!r} is gone", dropped)
    for rename in renamed.values():
        yield InPlace(f"value {rename.value!r} of state {state!r} was {rename.was!r}", rename)
    types = {dict(_pairs(renamed)).get(name, name): type_ for name, type_, _ in stored["values"]}
    for column in aggregate.columns:
        before, now = types.get(column.name), column.partial.type
        if column.value in kept and before is not None and widens(before, now):
            what = f"value {column.name!r} of state {state!r} changes from {before} to {now}"
            yield InPlace(what, WidenColumn(state, column.name, now))
    for value in (value for value in own if value not in kept and aggregate.aggregates[value].since):
        columns = tuple((each.name, each.partial.type, str(each.partial.merge)) for each in own[value])
        yield FromNowOn(
            f"value {value!r} of state {state!r} is new, {_types(columns)}", AddValue(state, value, columns)
        )


def after_step(stored: Metadata, step: ValueStep, aggregates: Mapping[str, str]) -> Metadata:
    """Return a state's stored columns after a step; `aggregates` has the descriptions of new aggregates."""
    values, known = list(stored["values"]), dict(stored.get("aggregates") or {})
    match step:
        case DropValue(_, value, columns):
            values = [each for each in values if each[0] not in columns]
            known.pop(value, None)
        case RenameValue(_, value, was, columns):
            values = [[dict(columns).get(name, name), *rest] for name, *rest in values]
            known = {value if name == was else name: text for name, text in known.items()}
        case WidenColumn(_, column, type_):
            values = [[name, type_ if name == column else was, merge] for name, was, merge in values]
        case AddValue(_, value, columns):
            values += [list(each) for each in columns]
            known[value] = aggregates[value]
        case _:
            assert_never(step)
    changed = {**stored, "values": values}
    return changed | {"aggregates": known} if "aggregates" in stored else changed


def _own(aggregate: PersistentAggregate) -> dict[str, list[ValueColumn]]:
    return {name: [each for each in aggregate.columns if each.value == name] for name in aggregate.aggregates}


def _values(own: Mapping[str, Sequence[ValueColumn]], stored: Metadata) -> dict[str, str]:
    """Return the values of a state stored without aggregates: the present values, and each remaining column as a value."""
    there = {name for name, *_ in stored["values"]}
    whole = {value: columns for value, columns in own.items() if there.issuperset(each.name for each in columns)}
    taken = {each.name for columns in whole.values() for each in columns}
    return dict.fromkeys([*whole, *sorted(there - taken)], "")


def _renamed(aggregate: PersistentAggregate, stored: Metadata, known: Collection[str]) -> Iterator[RenameValue]:
    """Yield a renaming for each value with `was`, if the value before is gone and the columns exist."""
    there, own = {name for name, *_ in stored["values"]}, _own(aggregate)
    for value, was in ((value, each.was) for value, each in aggregate.aggregates.items()):
        if was is None or value in known or was not in known or was in own:
            continue
        columns = tuple((was + each.partial.suffix, each.name) for each in own[value])
        if there.issuperset(before for before, _ in columns):
            yield RenameValue(aggregate.state.name, value, was, columns)


def _in_turn(steps: Sequence[RenameValue]) -> Iterator[RenameValue]:
    """Yield renamings in an order by which a column gives up a name before another column takes the name."""
    left = list(steps)
    while left:
        held = {before for step in left for before, _ in step.columns}
        turn = next((each for each in left if held.isdisjoint(after for _, after in each.columns)), left[0])
        left.remove(turn)
        yield turn


def _dropped(
    state: str,
    stored: Metadata,
    known: Collection[str],
    own: Mapping[str, Sequence[ValueColumn]],
    renamed: Mapping[str, RenameValue],
) -> Iterator[DropValue]:
    """Yield the missing values, each with the value's columns."""
    moved = {step.was for step in renamed.values()}
    columns = columns_by_value(stored["values"], known)
    for value in known:
        if value not in own and value not in moved:
            yield DropValue(state, value, tuple(name for name, *_ in columns[value]))


def _pairs(renamed: Mapping[str, RenameValue]) -> list[tuple[str, str]]:
    return [pair for step in renamed.values() for pair in step.columns]


def _types(columns: Sequence[tuple[Any, ...]]) -> str:
    return ", ".join(type_ for _, type_, _ in columns)
