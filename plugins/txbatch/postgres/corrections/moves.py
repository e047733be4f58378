"""Moves a state to another database, and back, within a change of the definition (R21, R23).

The topology's row is locked in the ledger, and no batch is open: nobody writes to the state meanwhile. The ledger says where the
state is, and its COMMIT decides: the copy is committed before that, shown to nobody until then; the original goes after it, in
the transaction that it was copied in, which has kept it locked all the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from psycopg2.errors import DependentObjectsStillExist
from sqlalchemy import Connection

from txbatch.core.batch.apart import ApartStatus, LastWriter
from txbatch.core.definition.redefinition import DropState, MoveState, RenameState, RenameTopology, Step
from txbatch.core.errors import TerminalError, Unavailable
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.apart import apart
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.engine import execute, run_all
from txbatch.postgres.database.generations import CURRENT
from txbatch.postgres.database.queries import query
from txbatch.postgres.schema import report_views, state_tables
from txbatch.postgres.state.statements import statements_of


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves states; `coming` holds transactions of other databases that end before the ledger's, `going` those that end after."""

    warehouses: Warehouses
    coming: ExitStack
    going: ExitStack
    begun: dict[tuple[str, int], Connection] = field(default_factory=dict)

    def to_warehouse(self, ledger: Connection, aggregate: PersistentAggregate) -> None:
        """Let the database that the state names have it; contributions and reports of it go from the ledger's.

        Raises SchemaMismatch when its name is taken there, Unavailable while a report here is open, TerminalError where others
        made a view of it.
        """
        name, database = aggregate.state.name, str(aggregate.state.database)
        with holders_told(ledger, name):
            run_all(ledger, report_views.lock(ledger, name))
            execute(ledger, f"LOCK TABLE {CURRENT.state(name)}")
        there = self._begin(database, self.coming, "change.apart_committed")
        last = _newest_writer(ledger, aggregate.topology)
        with holders_told(there, name):
            apart.replace(there, self.warehouses.identity(ledger), aggregate, last)
        state_tables.copy_rows(ledger, there, aggregate)
        with holders_told(ledger, name):
            state_tables.drop_tables(ledger, name)
        ledger.execute(query("state_moved"), {"state": name, "database": database, "applied_txid": last.txid or None})

    def to_ledger(self, ledger: Connection, aggregate: PersistentAggregate, was: str) -> None:
        """Let the ledger's database have a state again; its reports are made by whoever calls.

        Raises TerminalError or StateAhead when it is not there as the ledger has left it, and where others made a view of it
        there; Unavailable while a report there is open.
        """
        name = aggregate.state.name
        there = self._begin(was, self.going)
        self.warehouses.at_rest(ledger, there, aggregate.topology, name)
        execute(ledger, statements_of(aggregate).create_state())
        state_tables.copy_rows(there, ledger, aggregate)
        with holders_told(there, name):
            apart.drop_state(there, name)
        ledger.execute(query("state_moved"), {"state": name, "database": None, "applied_txid": None})

    def _begin(self, database: str, until: ExitStack, failpoint: str | None = None) -> Connection:
        """Return the transaction of a database that ends with `until`: one of each, or they would wait for each other."""
        if (at := (database, id(until))) not in self.begun:
            if any(other == database for other, _ in self.begun):
                raise TerminalError(
                    f"one change cannot move a state to database {database!r} and another back from it: take two steps"
                )
            self.begun[at] = until.enter_context(self.warehouses.begin(database, failpoint))
        return self.begun[at]


def check_left(ledger: Connection, topology: str, steps: Sequence[Step]) -> None:
    """Unavailable while a state has a copy left in another database that the ledger would lose sight of by these steps."""
    for left in ledger.execute(query("left_behind"), {"topology": topology}).mappings():
        if any(_loses(step, left["state"], left["database"]) for step in steps):
            raise Unavailable(
                f"{apart.where(**left)} has a copy from before it came back, which could not be removed: let that database be "
                "reached, those who read it there end, and views of others go that are made of its report, and try again"
            )


def _loses(step: Step, state: str, database: str) -> bool:
    match step:
        case RenameState(was=name) | DropState(state=name):
            return name == state
        case MoveState(state=name, database=goes):
            return name == state and goes != database
        case _:
            return isinstance(step, RenameTopology)


def _newest_writer(ledger: Connection, topology: str) -> LastWriter:
    row = ledger.execute(query("newest_writer"), {"topology": topology}).mappings().first()
    return LastWriter(**row, status=ApartStatus.APPLIED) if row else LastWriter()


@contextmanager
def holders_told(connection: Connection, state: str) -> Iterator[None]:
    """Context manager. Name who keeps a state from being moved: Unavailable for sessions, TerminalError for views of others."""
    try:
        with state_tables.holders_told(connection, state, "moved"):
            yield
    except DependentObjectsStillExist as error:
        detail = (error.diag.message_detail or "").replace("\n", "; ")
        raise TerminalError(
            f"state {state!r} cannot be moved, as a view or function that is not txbatch's is made of its report ({detail}): "
            "drop that, move the state, and make it anew where the state is then"
        ) from error
