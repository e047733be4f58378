"""Topologies that read a state: how they hold retention back, and which changes of the state are refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from txbatch.core.definition.redefinition import DropState, DropValue, RenameState, RenameValue, Step
from txbatch.core.errors import ChangeTooEarly, OutOfPlace, ReadByOthers, ReadersBehind
from txbatch.core.upstream.upstream import UpstreamReader, exported

if TYPE_CHECKING:
    from txbatch.core.topology.topology import Topology


def check_acyclic(topology: Topology, readers: Collection[UpstreamReader]) -> None:
    """Raise DefinitionError if a topology reads an own state, directly or through further topologies."""
    own = {aggregate.state.name: topology.name for aggregate in topology.aggregates}
    stored = [each for each in readers if each.topology != topology.name]
    owners = {each.state: each.owner for each in readers} | own
    way: dict[str | None, list[str]] = {}
    reads = [(topology.name, each.identity["state"]) for each in exported(topology).values()]
    while reads:
        reader, state = reads.pop()
        owner = owners.get(state)
        if owner is None or owner in way:
            continue
        way[owner] = [*way.get(reader, [reader]), f"state {state!r} of {owner}"]
        if owner == topology.name:
            raise OutOfPlace(
                f"topology {topology.name!r} reads what it makes itself: {' reads '.join(way[owner])}; a chain has an end: let "
                "one of them read another state"
            )
        reads += [(owner, each.state) for each in stored if each.topology == owner]


def held(
    readers: Iterable[UpstreamReader], topology: str, swapped: int, pruning: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return, by reader, up to which txid a topology may be folded: the lowest cut of the reader's next reading.

    Cuts up to `swapped` belong to generations replaced by a rebuild, and are never folded again. `pruning` has the horizons
    of states with pruned rows: nothing is folded while somebody reads all of a pruned state.

    >>> held([UpstreamReader("top", "words", "word_count", frozenset({0, 2, 7}))], "word_count", swapped=2)
    {'top': 7}
    >>> held([UpstreamReader("top", "hours", "visits", frozenset({2}), between=True)], "visits", swapped=4)
    {'top': 5}
    >>> held([UpstreamReader("top", "kept", "log", frozenset({0, 7}), opened=frozenset({0}))], "log", 0, {"kept": 3})
    {'top': 3}
    """
    found: dict[str, int] = {}
    for each in (each for each in readers if each.owner == topology):
        needs = (max(txid, swapped + 1) if each.between else txid for txid in each.needs)
        lowest = [txid for txid in needs if txid > swapped]
        if pruning and each.state in pruning and each.reads_all(swapped):
            lowest.append(pruning[each.state])
        for txid in lowest:
            found[each.topology] = min(txid, found.get(each.topology, txid))
    return found


def check_changed(
    readers: Iterable[UpstreamReader], looked_up: Iterable[UpstreamReader], steps: Iterable[Step]
) -> None:
    """Raise TerminalError if a renamed or dropped state is read by streams of other topologies.

    Raise ChangeTooEarly while an open batch looks up in a renamed or dropped state, by name: only other plans get the new
    name. Raise ChangeTooEarly if a value is renamed or dropped while an open batch reads the state: the batch may read the
    value.
    """
    read, looked = list(readers), list(looked_up)
    for step in steps:
        match step:
            case RenameState(was=state) | DropState(state=state):
                _check_not_known(state, read, looked)
            case RenameValue(state=state) | DropValue(state=state):
                _check_values_not_read(state, (*read, *looked))


def _check_not_known(state: str, read: Iterable[UpstreamReader], looked: Iterable[UpstreamReader]) -> None:
    for each in read:
        if each.state == state:
            raise ReadByOthers(
                f"state {state!r} stays unchanged while topology {each.topology!r} reads the state: to change {state!r} all the "
                f"same, `txbatch drop {each.topology}`, change {state!r}, and run {each.topology!r} again"
            )
    for each in looked:
        if each.state == state:
            raise ChangeTooEarly(
                f"state {state!r} stays unchanged while an open batch of topology {each.topology!r} looks up the state: end "
                f"or `txbatch abort` the batch, and try again; `txbatch batches {each.topology}` lists the batches"
            )


def _check_values_not_read(state: str, readers: Iterable[UpstreamReader]) -> None:
    for each in readers:
        if each.state == state and each.opened:
            raise ChangeTooEarly(
                f"the values of state {state!r} stay what they are while an open batch of topology {each.topology!r} reads the "
                f"state or looks it up: let that end, or `txbatch abort` it; `txbatch batches {each.topology}` lists them"
            )


def check_past_read(
    readers: Iterable[UpstreamReader], looked_up: Iterable[UpstreamReader], topology: str, swapped: int
) -> None:
    """Raise ReadersBehind while a topology stands at a cut up to `swapped`, ChangeTooEarly while an open batch looks up
    as of an old cut.
    """
    for each in _before(swapped, topology, looked_up):
        raise ChangeTooEarly(
            f"{topology}: an open batch of topology {each.topology!r} looks up in state {each.state!r} as it was before a "
            f"rebuild: let that batch end, or `txbatch abort` it, and try again; `txbatch batches {each.topology}` lists them"
        )
    for each in _before(swapped, topology, readers):
        raise ReadersBehind(
            f"{topology}: topology {each.topology!r} has read state {each.state!r} as it was before a rebuild, and has still to "
            f"read what the rebuild changed: let {topology!r} commit its next batch, and then {each.topology!r}, and try again; "
            f"or `txbatch drop {each.topology}`"
        )


def _before(swapped: int, topology: str, readers: Iterable[UpstreamReader]) -> Iterator[UpstreamReader]:
    """Yield the readers that need a topology's states from before the swap."""
    for each in readers:
        if each.owner == topology and any(0 < max(txid, each.between) <= swapped for txid in each.needs):
            yield each
