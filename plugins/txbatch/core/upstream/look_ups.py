"""Look-ups in live states: the txid of the look-up, fixed by the plan of a batch, and the rows for an attempt.

The *cut* of a state is `{"txid": 9, "of": [...]}`; `of` tells the state apart from a dropped state of the same name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.transaction import Assignment, Metadata
from txbatch.core.definition.stored import state_definition
from txbatch.core.errors import MissingPart, RecordsGone, SchemaMismatch
from txbatch.core.naming import naming
from txbatch.core.records.fields import EXACT, Field, decimal_scale
from txbatch.core.topology.look_up import LiveState
from txbatch.core.upstream import upstream as upstreams
from txbatch.core.upstream.ranges import (
    UpstreamState,
    check_gone,
    check_kept,
    check_newest,
    check_same,
    check_there,
    marked_gone,
    once_committed,
)
from txbatch.core.upstream.upstream import Upstream, check_dated, known_in, shown_at, shown_columns

if TYPE_CHECKING:
    from txbatch.core.batch.staging import AttemptFolder
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.core.topology.topology import Topology

_THEN = (
    "look-ups as of then cannot be counted any more: if the batch is not committed, `txbatch abort` the batch, and the next run "
    "looks up as of now"
)


def live_states(topology: Topology) -> dict[LiveState, int]:
    """Return the live states for looking records up, with the numbers in the names of the states' files."""
    found = dict.fromkeys(query.state for query in topology.queries if isinstance(query.state, LiveState))
    return {state: number for number, state in enumerate(found, len(upstreams.exported(topology)))} if found else {}


def states_asked(topology: Topology, streams: Collection[str] | None = None) -> list[str]:
    """Return the states that a plan asks about: the states that `streams` read, by default all, and the live states."""
    spouts = upstreams.exported(topology)
    read = [
        state for name, spout in spouts.items() if streams is None or name in streams for state in spout.partitions()
    ]
    return list(dict.fromkeys([*read, *(state.name for state in live_states(topology))]))


def cuts(
    topology: Topology, facts: Mapping[str, UpstreamState] | None, then: Mapping[str, Metadata]
) -> dict[str, Metadata]:
    """Return the cut of each live state: the cut in `then`, or by default the present one. Without a ledger, `facts` is None.

    Raise UnknownName, TerminalError or RecordsGone if a state cannot be asked as of the cut, SchemaMismatch if a state lacks
    a field.
    """
    found: dict[str, Metadata] = {}
    for state in live_states(topology):
        if facts is None:
            raise MissingPart(f"{state} is looked up in as of a txid, which a ledger knows; give one")
        if state.name not in facts and (own := _own(topology, state)) is not None:
            found[state.name] = _before_first(state, own)
            continue
        known = known_in(facts, state.name)
        if state.name not in then:
            check_newest(known)
            check_there(known, known.txid, once_committed(known))
        cut = found[state.name] = then.get(state.name) or _now(known)
        check_cut(known, cut, again=True)
        _check_fields(state, cut, shown_at(known, cut["txid"]))
    return found


def _own(topology: Topology, state: LiveState) -> PersistentAggregate | None:
    return next((each for each in topology.aggregates if each.state.name == state.name), None)


def _before_first(state: LiveState, own: PersistentAggregate) -> Metadata:
    """Return the cut of a topology's own state before the topology is registered, for `txbatch plan`: an empty state."""
    cut, definition = {"txid": 0, "of": []}, state_definition(own)
    check_dated(state.name, definition.database, contributions=definition.contributions)
    _check_fields(state, cut, shown_columns(definition.columns))
    return cut


def check_cut(known: UpstreamState, cut: Metadata, *, again: bool = False) -> None:
    """Raise RecordsGone if a state cannot be asked as of a cut any more, or has lost rows of the cut.

    If a batch is planned with the cut of another batch, `again` is True.
    """
    range_ = {"start": cut["txid"], "end": cut["txid"], "of": cut["of"]}
    check_same(known, range_, _THEN)
    check_there(known, cut["txid"], _THEN)
    check_kept(known, range_, _THEN)
    check_gone(known, {**cut, "start": 0, "end": cut["txid"]}, _THEN, again=again)


def _now(known: UpstreamState) -> Metadata:
    """Return the present cut of a state, with marks of what retention had removed; without marks, nothing was removed."""
    found = marked_gone(known, {"start": 0, "end": known.txid})
    return {
        "txid": known.txid,
        "of": list(known.made),
        **{name: found[name] for name in ("left", "pruned") if name in found},
    }


def export(topology: Topology, upstream: Upstream, assignment: Assignment, folder: AttemptFolder) -> None:
    """Write the rows of states into an attempt's folder: for the streams, and for looking records up."""
    upstreams.export(topology, upstream, assignment, folder)
    for state, number in live_states(topology).items():
        cut = assignment.plan.as_of.get(state.name)
        if cut is None:
            raise RecordsGone(
                f"{assignment.topology} {assignment.attempt}: its plan does not say as of which txid {state} is looked up in, as "
                "the job did not when it was made; of a batch that is not committed, `txbatch abort` it, and run again"
            )
        known = upstream.known(state.name)
        check_cut(known, cut)
        shown = shown_at(known, cut["txid"])
        _check_fields(state, cut, shown)
        rows = upstream.rows(state.name, cut["txid"], [field.name for field in state.fields])
        with naming(f"{state}, looked up"):
            folder.write_export(number, state.fields, _fitted(rows, state.fields, shown))


def _check_fields(state: LiveState, cut: Metadata, shown: Mapping[str, str]) -> None:
    for field in state.fields:
        if field.name not in shown:
            raise SchemaMismatch(
                f"{state} has no {field.name!r} as of txid {cut['txid']}, where it is looked up; it has {', '.join(shown)}"
            )


def _fitted(
    rows: Iterable[Sequence[Any]], fields: Sequence[Field], shown: Mapping[str, str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows. Means, with as many digits as a division gives, are rounded half up to the declared digits."""
    scales = [decimal_scale(field.type) if shown[field.name].startswith("Avg") else None for field in fields]
    for row in rows:
        yield tuple(
            value if scale is None else _rounded(value, scale) for value, scale in zip(row, scales, strict=True)
        )


def _rounded(value: Any, scale: int) -> Any:
    return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT) if isinstance(value, Decimal) else value
