"""The refused changes of a definition, and the ways out (R23)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from txbatch.core.batch.transaction import Batch
from txbatch.core.definition.changes import redefinitions
from txbatch.core.definition.redefinition import (
    DropValue,
    NeedsRebuild,
    Redefinition,
    RenameState,
    RenameTopology,
    RenameValue,
    Step,
    ways,
)
from txbatch.core.definition.stored import StoredTopology
from txbatch.core.errors import ChangeTooEarly, SchemaMismatch
from txbatch.core.topology.topology import Topology


def check_definition(topology: Topology, job: str, known: StoredTopology) -> None:
    """Raise SchemaMismatch if the definition differs from the stored one: with the differences, and ways to keep history."""
    name, found = topology.name, redefinitions(topology, known)
    changes = "; ".join(each.what for each in found)
    first = (
        ""
        if known.was or job == known.job
        else f"{known.job} defines it already; if {job} is a second job, give its topology another name there. "
    )
    if found and not known.counted:
        back = "" if known.txid is None else "put the old definition back; or "
        raise SchemaMismatch(
            f"topology {name!r} is defined otherwise now: {changes}. {first}Nothing is counted yet: {back}"
            f"`txbatch drop {known.was or name}` and run it again"
        )
    if found:
        raise SchemaMismatch(
            f"topology {name!r} has history, up to txid {known.txid}, and is defined otherwise now: {changes}. {first}"
            f"{ways(name, job, found, way_out(name, apart=_has_apart(topology, known)))}"
        )


def check_change(topology: Topology, job: str, known: StoredTopology, pending: Sequence[Batch]) -> list[Redefinition]:
    """Return the changes of a definition to be applied; empty if nothing has changed.

    Raise SchemaMismatch if a change needs a rebuild, ChangeTooEarly while a batch is open: the batch needs the old definition.
    """
    found = redefinitions(topology, known)
    if any(isinstance(each, NeedsRebuild) for each in found):
        check_definition(topology, job, known)
    if found and pending:
        first = pending[0]
        raise ChangeTooEarly(
            f"topology {topology.name!r} cannot be changed while txid {first.txid} of {first.lease_run} is open "
            f"({first.status}), which is of the definition before: let that run finish by the job as it was, or "
            f"`txbatch abort {topology.name} {first.txid} --why '...'`"
        )
    return found


def check_names_kept(topology: str, replaced: int | None, steps: Iterable[Step]) -> None:
    """Raise ChangeTooEarly if names change while a generation replaced by rebuild `replaced` is kept, with the old names.

    A dropped value counts as a change of names: another value may take the name later. If no old generation is kept,
    `replaced` is None.
    """
    named = RenameTopology | RenameState | RenameValue | DropValue
    if replaced is not None and any(isinstance(step, named) for step in steps):
        raise ChangeTooEarly(
            f"topology {topology!r} and its states keep their names while what they were before rebuild {replaced} can be asked "
            f"for, and so do their values: change the names after `txbatch rebuild {topology} --drop-past`"
        )


def _has_apart(topology: Topology, known: StoredTopology) -> bool:
    """True if a state is or was in another database, so that nothing can be rebuilt."""
    now = [aggregate.state.database for aggregate in topology.aggregates]
    return any(database is not None for database in [*now, *(state.database for state in known.states.values())])


def way_out(topology: str, *, apart: bool) -> str:
    """Return the first way out of a changed definition; the page of SchemaMismatch has them all.

    If `apart`, a state is in another database, and a rebuild is no way out.
    """
    if apart:
        return "Put the old definition back; or define another topology, with states of other names"
    return (
        f'Put the old definition back; or `txbatch rebuild {topology} --why "..."`, to count all batches again by the new '
        "definition, while reports go on"
    )
