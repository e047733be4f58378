"""The parts of a topology that must stay once batches are planned: streams, fields, states, keys and values (R23).

Functions, filters, look-ups, and the order of streams and states may change: batches count by the job as of the emission.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from txbatch.core.aggregates.merge import merge_named
from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.redefinition import (
    AddState,
    AddValue,
    Define,
    DropState,
    DropValue,
    FromNowOn,
    InPlace,
    KeepContributions,
    NeedsRebuild,
    Prune,
    Redefinition,
    RenameValue,
    Step,
    ValueStep,
    after_step,
    value_changes,
    widens,
)
from txbatch.core.definition.renames import renamed, topology_renamed
from txbatch.core.definition.stored import (
    _DROPPED,
    StateDefinition,
    StoredTopology,
    StreamDefinition,
    state_definition,
    stream_definitions,
    stream_fields,
    stream_watermarks,
)
from txbatch.core.errors import ChangeTooEarly, NameTaken
from txbatch.core.state.state import changes_name
from txbatch.core.stored_json import canonical_json
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.core.windows.watermark import MERGE, Watermark

# Entries of a source's identity that ledgers of earlier versions lack: the first definition met is taken.
_NOT_ALWAYS_KEPT = ("times", "pattern", "reads")
# The columns of a batch in a report of changes, beside the txid.
BATCH_COLUMNS = frozenset({"committed_at", "interval_start", "interval_end", "replaced_by"})
_SOURCE_LENGTH_MAX = 200


def check_none_runs(topology: str, found: Sequence[Redefinition], told: str | None) -> None:
    """Raise ChangeTooEarly if a definition changes while a rebuild runs, described by `told`, since rebuilds count by the old."""
    if found and told is not None:
        raise ChangeTooEarly(f"topology {topology!r} cannot be changed now: {told}")


def redefinitions(topology: Topology, known: StoredTopology) -> list[Redefinition]:
    """Return the differences between the topology and the stored definition, with the consequence of each.

    Renamings come first; all further differences use the new names. Raise NameTaken if a state belongs to another
    topology, DefinitionError if a new state cannot be reported.
    """
    known, found = renamed(topology, known)
    renamings: list[Redefinition] = [*found]
    if known.was is not None:
        renamings.insert(0, topology_renamed(topology, known, known.was))
    for aggregate in topology.aggregates:
        if aggregate.state.name not in known.states:
            _check_reported(aggregate)
    for state in (aggregate.state.name for aggregate in topology.aggregates):
        check_owner(state, known.owners.get(state, topology.name), topology.name)
    return [*renamings, *_changes(topology, known)]


def _check_reported(aggregate: PersistentAggregate) -> None:
    """Raise DefinitionError if a new state has a column named like a batch's column in the report of changes.

    A state from an earlier version goes on, and the report leaves the batch's column out.
    """
    ends = aggregate.window_end({key.name: "" for key in aggregate.keys})
    names = (
        [*(key.name for key in aggregate.keys), *ends, *aggregate.aggregates] if aggregate.state.contributions else []
    )
    for name in (name for name in names if name.lower() in BATCH_COLUMNS):
        state = aggregate.state.name
        raise NameTaken(
            f"column {name!r} of state {state!r} is reserved: report.{changes_name(state)} has the batch's of that name; rename"
        )


def check_owner(state: str, owner: str, topology: str) -> None:
    """Raise NameTaken if the state belongs to another topology."""
    if owner != topology:
        raise NameTaken(
            f"state {state!r} belongs to topology {owner!r}; a state has one topology: name another state, or, where "
            f"{topology!r} is that topology renamed, give it back its name, or say Topology({topology!r}, was={owner!r}) and "
            "`txbatch change`"
        )


def after_steps(stored: StateDefinition, steps: Iterable[Step], now: StateDefinition, txid: int = 0) -> StateDefinition:
    """Return the definition of a state after some steps; only steps on values matter. New values count from `txid` on.

    If the names of the values are the same as in the definition `now`, the order of the values is, too.
    """
    columns, since = stored.columns, dict(stored.since)
    for step in steps:
        match step:
            case AddValue(_, value, _):
                since[value] = txid
            case DropValue(_, value, _):
                since.pop(value, None)
            case RenameValue(_, value, was, _) if was in since:
                since[value] = since.pop(was)
            case _:
                pass
        if isinstance(step, ValueStep):
            columns = after_step(columns, step, now.columns["aggregates"])
    if sorted(columns["values"]) == sorted(now.columns["values"]) and stored.columns["values"] != columns["values"]:
        columns = {**columns, "values": now.columns["values"]}
    return replace(stored, columns=columns, since=since)


def column_changes(state: str, stored: Metadata, defined: Metadata) -> Iterator[str]:
    """Yield the differences between the stored and the defined keys and values of a state."""
    for part, what in (("keys", "key"), ("values", "value")):
        before, now = _specs(part, stored, defined), _specs(part, defined, stored)
        yield from (text for _, text in _differences(f"{what} {{!r}} of state {state!r}", before, now))
        if sorted(before) == sorted(now) and list(before) != list(now):
            yield f"the order of {part} of state {state!r} {_from_to(', '.join(before), ', '.join(now))}"
    for part, told in (("remove", _remove), ("rows", _records), ("batch", _within), ("windows", _windows)):
        was, defines = (each.get(part) or [] for each in (stored, defined))
        if was != defines:
            yield f"state {state!r} {_from_to(told(was), told(defines))}"
    if stored["values"] == defined["values"] and "aggregates" in stored:  # earlier versions did not keep them
        both = stored["aggregates"].keys() & defined["aggregates"].keys()
        told_above = both & {name for name, *_ in defined["values"]}
        before, now = (
            {name: text for name, text in each["aggregates"].items() if name not in told_above}
            for each in (stored, defined)
        )
        yield from (text for _, text in _differences(f"value {{!r}} of state {state!r}", before, now))


def _specs(part: str, columns: Metadata, other: Metadata) -> dict[str, str]:
    """Return each key or value with the type and the merge, or with the aggregate, if the aggregate differs in `other`."""
    own, others = (each.get("aggregates", {}) if part == "values" else {} for each in (columns, other))
    otherwise = {name for name in own.keys() & others.keys() if own[name] != others[name]}
    return {name: own[name] if name in otherwise else _spec(*spec) for name, *spec in columns[part]}


def _from_to(before: str, now: str) -> str:
    return f"changes from {before} to {now}"


def _remove(removes: Any) -> str:
    return "with remove=" if removes else "without remove="


def _records(fields: Any) -> str:
    return f"keeping records of {', '.join(map(' '.join, fields))}" if fields else "keeping aggregates"


def _within(operations: Any) -> str:
    return f"counting per batch: {'; '.join(operations)}" if operations else "counting all records together"


def _windows(windows: Any) -> str:
    return f"counting by {'; by '.join(windows)}" if windows else "counting by no window"


def _changes(topology: Topology, known: StoredTopology) -> Iterator[Redefinition]:
    """Yield every difference. Before the first txid, streams and new states are free: nothing has been read."""
    if known.txid is not None:
        yield from _stream_changes(topology, known)
    elif known.planned:
        now_read = stream_definitions(topology.source, None)
        for name in known.streams.keys() & now_read.keys():
            yield from map(NeedsRebuild, _source_changes(name, known.streams[name], now_read[name]))
    now = {aggregate.state.name: aggregate for aggregate in topology.aggregates}
    for name in sorted(known.states.keys() - now.keys()):
        if known.counts(name):
            gone, apart = f"state {name!r} is gone", known.states[name].database is not None
            yield NeedsRebuild(gone) if apart else InPlace(gone, DropState(name))
    for name, aggregate in now.items():
        if name in known.states:
            yield from _known_state_changes(aggregate, known)
        elif known.txid is not None:
            yield _joins(aggregate)


def _joins(aggregate: PersistentAggregate) -> Redefinition:
    state, what = aggregate.state, f"state {aggregate.state.name!r} is new"
    if state.since and state.database is None:
        return FromNowOn(what, AddState(state.name))
    return NeedsRebuild(what, joins=state.database is None)


def _known_state_changes(aggregate: PersistentAggregate, known: StoredTopology) -> Iterator[Redefinition]:
    """Yield the differences of a state in the ledger."""
    name, state = aggregate.state.name, state_definition(aggregate)
    if not known.counts(name) and known.committed:
        yield NeedsRebuild(f"state {name!r} is back, and has not counted txid {known.committed[0]}")
    if known.txid is not None and known.states[name].streams not in (None, state.streams):
        yield NeedsRebuild(f"state {name!r} {_from_to(_streams(known.states[name]), _streams(state))}")
    yield from _state_changes(aggregate, known.states[name], state)


def source_changes(topology: Topology, known: StoredTopology) -> Iterator[str]:
    """Yield the differences between the present sources and the batches' sources: streams, identity, order."""
    if topology.by_interval != known.by_interval:
        read = ("being read in any order", "being read by interval")
        yield f"the source {_from_to(read[known.by_interval], read[topology.by_interval])}"
    now = stream_definitions(topology.source, None)
    for name in sorted(known.streams.keys() - now.keys()):
        yield f"stream {name!r} is gone"
    for name, stream in now.items():
        if name in known.streams:
            yield from _source_changes(name, known.streams[name], stream)
        else:
            yield f"stream {name!r} is new"


def _stream_changes(topology: Topology, known: StoredTopology) -> Iterator[Redefinition]:
    yield from map(NeedsRebuild, source_changes(topology, known))
    for name, fields in stream_fields(topology).items():
        stored = known.streams.get(name)
        if stored is not None and stored.fields is not None:
            yield from _field_changes(name, stored.fields, fields)
    yield from _watermark_changes(known.watermarks, stream_watermarks(topology, known))


def _watermark_changes(
    stored: Mapping[str, Metadata], now: Mapping[str, Metadata]
) -> Iterator[FromNowOn | NeedsRebuild]:
    """Yield the differences of watermarks.

    For all batches with a watermark, plans fix which records are late, even when counted again, and the job decides what
    happens to late records. With another time neither holds, and `check_rebuild` refuses the change.
    """
    for stream in sorted(stored.keys() | now.keys()):
        before, after = (_watermark(each.get(stream)) for each in (stored, now))
        what = f"stream {stream!r} {_from_to(before, after)}"
        had, has = (MERGE if _is_dropped(each.get(stream)) else each[stream]["late"] for each in (stored, now))
        had = has if _is_dropped(stored.get(stream)) else had
        if had != has or _of_other_times(stored, now, stream):
            yield NeedsRebuild(what)
        elif before != after:
            yield FromNowOn(what, Define())


def watermark_times(topology: Topology, known: StoredTopology) -> Iterator[str]:
    """Yield the streams with a watermark of another time than before: plans fixed late records by the time before (R25)."""
    stored, now = known.watermarks, stream_watermarks(topology, known)
    for stream in sorted(stored.keys() & now.keys()):
        if _of_other_times(stored, now, stream):
            yield f"stream {stream!r} {_from_to(_watermark(stored[stream]), _watermark(now[stream]))}"


def _of_other_times(stored: Mapping[str, Metadata], now: Mapping[str, Metadata], stream: str) -> bool:
    """True if a stream's watermark has another field or kind of time than before, even if the watermark before was dropped."""
    if stream not in stored:
        return False
    before, after = (_said(each[stream]) for each in (stored, now))
    return (before.time, before.planned) != (after.time, after.planned)


def _watermark(stored: Metadata | None) -> str:
    if stored is None:
        return "no watermark"
    return f"no watermark since one {_said(stored)}" if _is_dropped(stored) else f"a watermark {_said(stored)}"


def _said(stored: Metadata) -> Watermark:
    return Watermark(**{name: value for name, value in stored.items() if name != _DROPPED})


def _is_dropped(stored: Metadata | None) -> bool:
    return stored is None or _DROPPED in stored


def _field_changes(stream: str, stored: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Redefinition]:
    """Yield the differences of a stream's fields. Only a new type that does not widen the old type needs a rebuild."""
    for name, what in _differences(f"field {{!r}} of stream {stream!r}", stored, now):
        if name not in stored:
            yield FromNowOn(what, Define())
        elif name not in now or widens(stored[name], now[name]):
            yield InPlace(what, Define())
        else:
            yield NeedsRebuild(what)


def _source_changes(name: str, stored: StreamDefinition, stream: StreamDefinition) -> Iterator[str]:
    if _equal(stored.source, stream.source):
        return
    kept = {entry: stream.source[entry] for entry in _NOT_ALWAYS_KEPT if entry in stream.source} | dict(stored.source)
    if _relative(kept, stream.source):
        kept["root"] = stream.source["root"]
    reads, before = _source(stream.source, kept), _source(kept, stream.source)
    if reads != before:
        yield f"stream {name!r} reads {reads}, but its batches were read from {before}"


def _relative(stored: Metadata, now: Metadata) -> bool:
    """True if an earlier version stored a root relative to a process's folder, and the present root is the same in full."""
    roots = stored.get("root"), now.get("root")
    before, after = (PurePath(root) if isinstance(root, str) else PurePath() for root in roots)
    ends_alike = after.parts[len(after.parts) - len(before.parts) :] == before.parts
    return isinstance(roots[0], str) and not before.is_absolute() and after.is_absolute() and ends_alike


def _state_changes(
    aggregate: PersistentAggregate, stored: StateDefinition, now: StateDefinition
) -> Iterator[Redefinition]:
    """Yield the differences of a state: first the changes without counting again, then all remaining differences."""
    same = _traits(stored) == _traits(now) and stored.columns == now.columns and stored.database == now.database
    if same and not stored.since:
        return  # as at nearly each plan and commit, which ask
    name = aggregate.state.name
    if now.database != stored.database:
        yield NeedsRebuild(
            f"state {name!r} {_from_to(_where(stored), _where(now))}, and what is counted stays where it is"
        )
        stored = replace(stored, contributions=now.contributions)
    if (prunes := "prune" in now.columns) != ("prune" in stored.columns):
        yield InPlace(f"rows of state {name!r} {'go' if prunes else 'stay'} now when retention folds them", Prune(name))
    here = now.database is None and stored.database is None
    if here and now.contributions and not stored.contributions:
        ways = "without contributions", "with contributions"
        yield InPlace(f"state {name!r} {_from_to(*ways)}", KeepContributions(name))
        stored = replace(stored, contributions=True)
    for before, after in zip(_traits(stored), _traits(now), strict=True):
        if before != after:
            yield NeedsRebuild(f"state {name!r} {_from_to(before, after)}")
    found = list(value_changes(aggregate, stored.columns)) if here else []
    yield from found
    kept = after_steps(stored, [each.step for each in found], now).columns
    new = now.columns["aggregates"].keys() - kept.get("aggregates", now.columns["aggregates"]).keys()
    joins = bool(new) and not aggregate.state.appends
    for what in column_changes(name, kept, now.columns):
        yield NeedsRebuild(what, joins)
    for value, txid in stored.since.items():
        if value in now.columns["aggregates"] and not aggregate.aggregates[value].since:
            counts = _from_to(f"counting from txid {txid} on", "counting all history")
            yield NeedsRebuild(f"value {value!r} of state {name!r} {counts}")


def _differences(what: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each name that is gone, new, or changed, with a text; `what` has a place for the name."""
    for name in {**before, **now}:
        if name not in now:
            yield name, f"{what.format(name)} is gone"
        elif name not in before:
            yield name, f"{what.format(name)} is new ({now[name]})"
        elif before[name] != now[name]:
            yield name, f"{what.format(name)} {_from_to(before[name], now[name])}"


def _spec(type_: str, merge: str | None = None) -> str:
    if merge is None:
        return type_
    known = merge_named(merge)
    return f"{type_}, {known.word if known else merge}"


def _source(identity: Metadata, other: Metadata) -> str:
    """Return the part of a source's identity that differs from another identity."""
    mine = {name: value for name, value in identity.items() if name not in other or not _equal(value, other[name])}
    text = canonical_json(mine)
    return text if len(text) <= _SOURCE_LENGTH_MAX else f"{text[:_SOURCE_LENGTH_MAX]}..."


def _equal(one: Any, other: Any) -> bool:
    return canonical_json(one) == canonical_json(other)


def _traits(state: StateDefinition) -> tuple[str, str]:
    return state.kind, f"{'with' if state.contributions else 'without'} contributions"


def _where(state: StateDefinition) -> str:
    return "the ledger's database" if state.database is None else f"database {state.database!r}"


def _streams(state: StateDefinition) -> str:
    return f"counting stream {', '.join(state.streams or ())}"
