"""State: a keyed aggregate, of one of Trident's three kinds, and the values that each kind keeps.

`core.state.update` changes them.
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

# A partition of the contributions is named after its state and its first txid: name@1234567890123456789
STATE_NAME_BYTES_MAX = 43
# The schema has views of these names in `report.`, where each state has its own.
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
    }
)
# A setting and an Airflow connection are named after it.
_DATABASE = re.compile(r"[a-z][a-z0-9_]*")


class StateKind(StrEnum):
    """Trident's three kinds of state."""

    NON_TRANSACTIONAL = "non_transactional"
    TRANSACTIONAL = "transactional"
    OPAQUE = "opaque"


class State:
    """A keyed aggregate in PostgreSQL: the table `state.<name>`, reported as `report.<name>`.

    `contributions` keeps what each batch contributed, for restate, why, as-of and verify; without it the state is
    smaller and those are refused. `database` names another database than the ledger's, where the state is kept apart
    (R21): without contributions. Where the topology has history, `was` is the name that the state had, and `since="now"` lets
    a new state count from the next txid on (R23). `keep_windows` is how long windows that have ended stay, such as "90 days",
    once `txbatch gc` is run: for ever, unless that is said (R30).
    """

    kind: StateKind
    appends = False  # whether it takes records, not aggregates
    prune = False  # whether rows go when retention folds what they came from
    files: Files | None = None  # where its records are written besides
    new_values: NewValuesTable | None = None  # the table that its commits fill with what they change
    keep_windows: int | None = None  # how many microseconds windows stay once they have ended; None: for ever

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
    """The view of what each batch contributed to a state."""
    return f"{state}_changes"


def changes_columns(keys: Sequence[str], values: Sequence[str]) -> list[str]:
    """Return the columns of what changes in a state.

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
    """The view of what each version of a position contributed to a state, as partials, which its functions fold."""
    return f"{state}@versions"


def check_reports(states: Sequence[State]) -> None:
    """DefinitionError when a state of a topology is named like a view of another one."""
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
    """Exactly-once for spouts that emit the same records for the same txid."""

    kind = StateKind.TRANSACTIONAL


class OpaqueState(State):
    """Exactly-once also for spouts whose retried batch may hold other records."""

    kind = StateKind.OPAQUE


@dataclass(frozen=True, slots=True)
class NonTransactionalValue:
    """A value without replay protection; `txid` is the last transaction that wrote it, for information only."""

    txid: int
    value: Partial


@dataclass(frozen=True, slots=True)
class TransactionalValue:
    """A value and the txid that last changed it."""

    txid: int
    value: Partial


@dataclass(frozen=True, slots=True)
class OpaqueValue:
    """A value, the txid that last changed it, and what both were before that; `prev_txid` None: the key did not exist.

    `value` None is a tombstone: a state apart remembers what the key was until the txid that removed it is final (R21).
    """

    txid: int
    value: Partial | None
    prev: Partial | None
    prev_txid: int | None


Value = NonTransactionalValue | TransactionalValue | OpaqueValue
