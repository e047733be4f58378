"""Plans the ranges of a table: whole transactions of the window between two snapshots, and the rows from before by key."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from txbatch.core.batch.transaction import Metadata
from txbatch.core.errors import RowsDiffer, SourceChanged, SourceUnfit
from txbatch.core.records.fields import Field
from txbatch.core.sources.snapshots import FIRST, Snapshot, both, until
from txbatch.spouts.tables import description, server
from txbatch.spouts.tables.columns import selected
from txbatch.spouts.tables.connection import Session
from txbatch.spouts.tables.description import Leaf, Table, sql_name
from txbatch.spouts.tables.server import Server
from txbatch.spouts.tables.windows import any_of, conditions, counted, keys_between, quoted, window

# A witness has at most so many rows: more are not looked at again with each plan.
WITNESS_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a spout reads: `existing` also the rows from before the column xact, `changing` rows that change."""

    table: str
    fields: Sequence[Field]
    max_rows: int
    timezone: str | None
    existing: bool
    accept: frozenset[str]
    changing: bool = False


class Look:
    """One look at a server: the table, and how far the server is."""

    def __init__(
        self, session: Session, table: str, fields: Sequence[Field], timezone: str | None, *, changing: bool = False
    ) -> None:
        """Look. Raise SourceUnfit if the table cannot be read, UnsafeSource if the role may write in a ledger."""
        description.check_role(session)
        self.session = session
        self.table: Table = description.describe(session, table, changing=changing)
        description.check(session, self.table, fields, timezone)
        self.leaves = description.leaves(session, self.table)
        self.server: Server = server.look(session)
        self._name, self._changing = sql_name(table), changing
        self._check_numbers()

    def _check_numbers(self) -> None:
        """Refuse rows with numbers that the server has not given: no batch would have them until the server has come so far."""
        ahead = "xact >= pg_snapshot_xmax(pg_current_snapshot())"
        if found := self.session.rows(f"SELECT xact::text FROM {self._name} WHERE {ahead} LIMIT 1"):
            raise SourceUnfit(
                f"{self.session.of}: a row has transaction {found[0][0]}, which this server has not begun: the rows have numbers "
                "of another server, as a dump that was put back has them. DROP COLUMN xact, prepare the table again, and read "
                "the table in a new topology"
            )

    def _counted(self, records: int) -> dict[str, Any]:
        """Return the number of rows, of rows that change only about so many; and the server's history."""
        return {"about" if self._changing else "records": records, "history": self.server.history(self.table.oid)}

    def _count(self, found: Sequence[str]) -> int:
        return int(self.session.row(counted(self._name, found))[0])


Looked = TypeVar("Looked", bound=Look)


class KeptLook(Generic[Looked]):
    """The look of a coordinator at its server: made once a plan asks for the look, and kept for this plan alone, or for all plans
    of `one_look`.
    """

    def __init__(
        self, session: Callable[[], AbstractContextManager[Session]], look: Callable[[Session], Looked]
    ) -> None:
        self._session, self._look = session, look
        self._open, self._made, self._keeps = ExitStack(), list[Looked](), False

    @property
    def now(self) -> Looked:
        """The look. Raise the errors of `Look` if none is made yet."""
        if not self._made:
            self._made.append(self._look(self._open.enter_context(self._session())))
        return self._made[0]

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Context manager. Keep the look for all plans of the block."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False
            self.close()

    @contextmanager
    def one_plan(self) -> Iterator[None]:
        """Context manager. End the look with the block, unless other plans need the look."""
        try:
            yield
        finally:
            if not self._keeps:
                self.close()

    def close(self) -> None:
        """End the look."""
        self._made.clear()
        self._open.close()


class Planner(Look):
    """Plans ranges by one look at the server: the table and its newest end."""

    def __init__(self, session: Session, wanted: Wanted) -> None:
        super().__init__(session, wanted.table, wanted.fields, wanted.timezone, changing=wanted.changing)
        self.wanted = wanted
        self._checked: set[str] = set()

    @property
    def before(self) -> int | None:
        """The transaction of the rows from before, which are read by key or left out; None if there is none."""
        return self.table.before if self.table.key or not self.wanted.existing else None

    def check(self, last: Metadata) -> None:
        """Refuse a server that has another history than the last range, or other rows of its newest transaction."""
        server.check(self.session.of, self.server, self.table.oid, last, self.wanted.accept)
        if str(last["end"]) in self._checked:
            return
        self._checked.add(str(last["end"]))
        if "leaves" in last:
            self._check_leaves(last)
        if "witness" in last and last["witness"][0] not in self.wanted.accept:
            self._check_witness(last["witness"])
        if last["history"] != self.server.history(self.table.oid):
            self._check_records(last)

    def next_window(self, last: Metadata | None, but: int | None) -> Metadata | None:
        """Return the range after the last range; None if nothing has ended since. `but` is left out."""
        a = Snapshot.parse(last["end"]) if last else FIRST
        b = both(a, self.server.snapshot)
        end, records, newest = self._cut(a, b, but)
        if not records:
            return None
        self._checked.add(str(end))
        left_out = {} if but is None else {"but": str(but)}
        more = {"witness": self.witness(newest), **left_out, **self._same_leaves()}
        return {"start": str(a), "end": str(end), **self._counted(records), **more}

    def next_key(self, last: Metadata | None, xact: int) -> Metadata | None:
        """Return the range of keys after the last range, of the rows of a transaction; None if there are no such rows."""
        if last is None and not self.session.rows(f"SELECT FROM {self._name} WHERE xact = '{xact}'::xid8 LIMIT 1"):
            return None
        key, start = self.table.key, last["end"] if last else None
        if last is not None and [list(each) for each in key] != [list(each) for each in last["key"]]:
            was, now = (", ".join(map(" ".join, each)) or "none" for each in (last["key"], key))
            raise SourceUnfit(
                f"{self.session.of}: its rows from before are read by the primary key ({was}), and its key is another one now "
                f"({now}): put the key back, or read the table in a new topology"
            )
        # Qualified: a bare name would be the text's, and texts are in another order than numbers.
        columns = ", ".join(f"t.{quoted(name)}" for name, _ in key)
        texts = ", ".join(f"{quoted(name)}::text" for name, _ in key)
        from_here = f"FROM {self._name} t WHERE {keys_between(xact, key, start, None)}"
        found = self.session.rows(
            f"SELECT {texts} {from_here} ORDER BY {columns} OFFSET {self.wanted.max_rows - 1} LIMIT 2"
        )
        records = self.wanted.max_rows
        if not found:
            backwards = ", ".join(f"t.{quoted(name)} DESC" for name, _ in key)
            found = self.session.rows(f"SELECT {texts} {from_here} ORDER BY {backwards} LIMIT 1")
            records = self.session.row(f"SELECT count(*) {from_here}")[0]
        if not found:
            return None
        ended = {"ended": True} if len(found) < 2 else {}
        by = {"xact": str(xact), "key": [list(each) for each in key]}
        return {"start": start, "end": list(found[0]), **self._counted(records), **by, **ended}

    def records(self, range_: Mapping[str, Any]) -> int:
        """Return how many rows a range has now."""
        return self._count(conditions(range_))

    def witness(self, xact: str) -> list[Any]:
        """Return a transaction with the number and the digest of its rows, and of how the digest was made.

        Rows that change have no digest: later fewer of them have this transaction, never more.
        """
        fields = ", ".join(self._expressions())
        one = f"SELECT ROW({fields})::text AS t FROM {self._name} WHERE xact = '{xact}'::xid8 LIMIT {WITNESS_ROWS + 1}"
        rows, digest = self.session.row(f"SELECT count(*), sum(hashtextextended(t, 0))::text FROM ({one}) w")
        return [
            xact,
            rows,
            digest if rows <= WITNESS_ROWS and not self._changing else None,
            zlib.crc32(fields.encode()),
        ]

    def _expressions(self) -> list[str]:
        return [selected(field, self.table.columns[field.name], self.wanted.timezone) for field in self.wanted.fields]

    def _cut(self, a: Snapshot, b: Snapshot, but: int | None) -> tuple[Snapshot, int, str]:
        """Return the end of the rows that come next, how many rows come, and the newest transaction among them.

        A range has whole transactions: `max_rows` rows at most, unless the first transaction has more.
        """
        too_many = self._in_order(a, b, but, self.wanted.max_rows)
        end = b if too_many is None else until(a, b, int(too_many) - 1)
        newest = self._in_order(a, end, but, 0, "DESC")
        if newest is not None:
            return end, self._count(window(a, end, but)), newest
        if too_many is None:
            return end, 0, ""
        return until(a, b, int(too_many)), self._count([f"xact = '{too_many}'::xid8"]), too_many

    def _in_order(self, a: Snapshot, b: Snapshot, but: int | None, skipped: int, order: str = "ASC") -> str | None:
        """Return the transaction of the row behind so many rows of a window.

        Each stretch of the index is read in order up to that row: PostgreSQL would read and sort all rows of all stretches.
        """
        select, in_order = f"SELECT xact FROM {self._name} WHERE", f"ORDER BY xact {order} LIMIT {skipped + 1}"
        if not (rows := " UNION ALL ".join(f"({select} {each} {in_order})" for each in window(a, b, but))):
            return None
        behind = f"ORDER BY u.xact {order} OFFSET {skipped} LIMIT 1"
        found = self.session.rows(f"SELECT u.xact::text FROM ({rows}) u {behind}")
        return found[0][0] if found else None

    def _same_leaves(self) -> dict[str, Any]:
        """Return what a range keeps of the partitions. Raise SourceChanged if the first load began with others."""
        if not self.table.partitioned:
            return {}
        found = _oids(self.leaves)
        if found != _oids(description.leaves(self.session, self.table)):
            raise SourceChanged(
                f"{self.session.of}: partitions were attached or detached while its rows were counted; try again"
            )
        return {"leaves": found}

    def _check_leaves(self, last: Metadata) -> None:
        """Refuse a partition that was attached since the last range with rows of transactions that no later range has."""
        but = int(last["but"]) if "but" in last and not self.wanted.existing else None
        behind = any_of(window(FIRST, Snapshot.parse(last["end"]), but))
        for leaf in self.leaves:
            if leaf.oid in last["leaves"] or leaf.name in self.wanted.accept:
                continue
            if found := self.session.rows(f"SELECT xact::text FROM ONLY {leaf.name} WHERE {behind} LIMIT 1"):
                raise RowsDiffer(
                    f"{self.session.of}: its partition {leaf.name} was attached with rows of transaction {found[0][0]}, which "
                    "was counted before: no batch would read these rows. Detach it, and load and attach in one transaction, or "
                    f"insert through the parent. If the rows are not to be read, give the spout accept={leaf.name!r}"
                )

    def _check_witness(self, then: Sequence[Any]) -> None:
        now = self.witness(then[0])
        same_way = then[3] == now[3]
        if self._changing and now[1] <= then[1]:
            return
        if then[1] != now[1] or (same_way and then[2] != now[2]):
            how = f"{now[1]} now" if then[1] != now[1] else "others now"
            raise RowsDiffer(
                f"{self.session.of}: transaction {then[0]} had {then[1]} rows when it was counted, {how}: rows were lost or "
                "changed there; txbatch verify tells which batches. If this was meant, give the spout "
                f"accept={then[0]!r}"
            )

    def _check_records(self, last: Metadata) -> None:
        """Compare the whole last range with the table: the server was started anew, or its history is another one."""
        now, then = self.records(last), last.get("records", last.get("about"))
        as_it_was = now <= then if self._changing else now == then
        if not as_it_was and str(last["end"]) not in self.wanted.accept:
            raise RowsDiffer(
                f"{self.session.of}: its server was started anew, and {now:,} of the {then:,} rows of the last batch "
                "are there: rows were lost or removed; txbatch verify tells which batches. If this was meant, give the spout "
                f"accept={str(last['end'])!r}"
            )


def _oids(leaves: Sequence[Leaf]) -> list[int]:
    return [leaf.oid for leaf in leaves]
