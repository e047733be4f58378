"""The job behind a state: values that merge by a rule of the job can only be folded with the job at hand."""

from __future__ import annotations

from collections.abc import Callable

from txbatch.core.aggregates.merge import merge_named
from txbatch.core.aggregates.python_combiner import by_python
from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.stored import columns
from txbatch.core.errors import JobNotFound, SchemaMismatch
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology

# Returns the topology of a name, as defined by the job file; raises TerminalError if the job file is not at hand.
Jobs = Callable[[str], Topology]


def no_jobs(topology: str) -> Topology:
    """Refuse: no job file is looked for."""
    raise JobNotFound(f"the job of {topology} is not at hand")


def own_rule(stored: Metadata) -> str | None:
    """Return a value of a stored state that merges by the job's own rule, with the rule; None if no value does.

    >>> own_rule({"values": [["count", "bigint", "add"], ["far_low", "double", "Span.combine"]]})
    "'far_low' by Span.combine"
    """
    own = (f"{name!r} by {rule}" for name, *_, rule in stored["values"] if merge_named(rule) is None)
    return next(own, None)


def python_rule(stored: Metadata) -> str | None:
    """Return a value that is merged by the job's Python, not by PostgreSQL, with the rule; None if no value is."""
    return next((f"{name!r} by {rule}" for name, *_, rule in stored["values"] if by_python(rule)), None)


def defined(jobs: Jobs, topology: str, state: str, stored: Metadata) -> PersistentAggregate:
    """Return a state as defined by the job. Raise SchemaMismatch if the definition differs from the stored one."""
    found = next((each for each in jobs(topology).aggregates if each.state.name == state), None)
    if found is None or any(columns(found)[part] != stored[part] for part in ("keys", "values", "aggregates")):
        raise SchemaMismatch(f"the job of {topology} defines state {state!r} otherwise than it was counted")
    return found
