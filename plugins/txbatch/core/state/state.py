"""State: a keyed aggregate, of one of Trident's three kinds, and the values kept by each kind.

`core.state.update` changes the values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from txbatch.core.aggregates.merge import Partial
from txbatch.core.errors import InvalidName, NameTaken, NotAnotherDatabase
from txbatch.core.records.fields import check_since, checked_name, fitted_name, free_name
from txbatch.core.state.new_values import NewValuesTable
from txbatch.core.windows.window import micros

if TYPE_CHECKING:
    from txbatch.core.state.files import Files

# A partition of the contributions is named after the state and the partition's first txid: name@1234567890123456789
STATE_NAME_BYTES_MAX = 43
# The ledger's own views in `report.`, beside the views of states.
REPORTS = frozenset(
    {
        "batches",
        "attempts",
        "partitions",
        "completeness",
        "gaps",
        "waiting",
        "state_coverage",
        "restatements",
        "batch_reads",
        "closings",
        "changes_of_definition",
        "values_since",
        "rebuilds",
        "retention",
        "windows_left",
        "topologies",
        "states",
        "past_states",
        "batch_runs",
        "exceptional_txids",
    }
)
# A setting and an Airflow connection are named after the database.
_DATABASE = re.compile(r"[a-z][a-z0-9_]*")


class StateKind(StrEnum):
    """Trident's three kinds of state."""

    NON_TRANSACTIONAL = "non_transactional"
    TRANSACTIONAL = "transactional"
    OPAQUE = "opaque"


class State:
    """A keyed aggregate in PostgreSQL: the table `state.<name>`, reported as `report.<name>`.

    `contributions` keeps each batch's contribution. Without contributions the state is smaller, restate, why and as-of are
    refused, and verify compares the state with all batches together. `database` names a database apart from the ledger's
    (R21), without contributions.
    If the topology has history, `was` is the state's name before, and `since="now"` lets a new state count from the next txid
    on (R23). `keep_windows` is how long ended windows stay if `txbatch gc` is run, such as "90 days"; by default for ever (R30).
    """

    kind: StateKind
    appends = False  # whether the state takes records, not aggregates
    prune = False  # whether rows go when retention folds the rows' batches
    files: Files | None = None  # where copies of the records are written
    new_values: NewValuesTable | None = None  # the table for changes, filled by commits
    keep_windows: int | None = None  # how many microseconds ended windows stay; None: for ever

    def __init__(
        self,
        name: str,
        *,
        contributions: bool | None = None,
        database: str | None = None,
        was: str | None = None,
        since: str | None = None,
        keep_windows: str | None = None,
    ) -> None:
        check_since(since)
        self.was, self.since = was, since
        self.name = checked_name(name, "state", STATE_NAME_BYTES_MAX)
        if name in REPORTS:
            raise NameTaken(f"state {name!r}: report.{name} is a report of the ledger; name it otherwise")
        if database is not None and not _DATABASE.fullmatch(database):
            raise InvalidName(
                f"state {name!r}: database {database!r} is not a name such as 'warehouse': small letters, digits, '_'"
            )
        if database is not None and contributions:
            raise NotAnotherDatabase(
                f"state {name!r} is kept apart, in {database!r}: it cannot have contributions there"
            )
        self.contributions = database is None if contributions is None else contributions
        self.database = database
        if keep_windows is not None:
            self.keep_windows = micros(f"state {name!r}", "keep_windows", keep_windows)


def changes_name(state: str) -> str:
    """Return the name of the view with each batch's changes to a state."""
    return f"{state}_changes"


def changes_columns(keys: Sequence[str], values: Sequence[str]) -> list[str]:
    """Return the columns of a state's changes.

    >>> changes_columns(["word"], ["count"])
    ['word', 'change', 'count_before', 'count_after', 'txid']
    """
    taken = [*keys, "txid"]
    taken.append(free_name("change", taken))
    for value in values:
        for suffix in ("_before", "_after"):
            taken.append(free_name(fitted_name(value, suffix), taken))
    return [*keys, *taken[len(keys) + 1 :], "txid"]


def versions_name(state: str) -> str:
    """Return the name of the view with each version's partials in a state, for the state's functions to fold."""
    return f"{state}@versions"


def report_names(state: str) -> list[str]:
    """Return the names of the views of a state with contributions, the report first."""
    return [state, changes_name(state), versions_name(state)]


def check_reports(states: Sequence[State]) -> None:
    """Raise DefinitionError if a state of a topology is named like a view of another state."""
    names = {state.name for state in states if state.database is None}
    for state in (state for state in states if state.contributions):
        of = {changes_name(state.name): "each batch changed in", versions_name(state.name): "each version counts in"}
        for taken in names & of.keys():
            raise NameTaken(
                f"state {taken!r}: report.{taken} is what {of[taken]} state {state.name!r}; name it otherwise"
            )


class NonTransactionalState(State):
    """No guarantee: a replayed batch counts again."""

    kind = StateKind.NON_TRANSACTIONAL


class TransactionalState(State):
    """Exactly once for spouts that emit the same records for the same txid."""

    kind = StateKind.TRANSACTIONAL


class OpaqueState(State):
    """Exactly once, even for spouts that may emit other records for a retried batch."""

    kind = StateKind.OPAQUE


@dataclass(frozen=True, slots=True)
class NonTransactionalValue:
    """A value without replay protection; `txid` is the last transaction that wrote the value, for information only."""

    txid: int
    value: Partial


@dataclass(frozen=True, slots=True)
class TransactionalValue:
    """A value, and the txid of the last change."""

    txid: int
    value: Partial


@dataclass(frozen=True, slots=True)
class OpaqueValue:
    """A value, the txid of the last change, and both before the change; if the key did not exist, `prev_txid` is None.

    `value` None is a tombstone: a state apart keeps the key's value before until the removing txid is final (R21).
    """

    txid: int
    value: Partial | None
    prev: Partial | None
    prev_txid: int | None


Value = NonTransactionalValue | TransactionalValue | OpaqueValue
