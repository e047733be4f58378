"""ReadsTable: what the spouts of a table have in common, from the options to the rows in Spark."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from txbatch import settings
from txbatch.core.batch.transaction import Metadata, TransactionAttempt
from txbatch.core.errors import InvalidOption
from txbatch.core.records.declared import fields_ddl
from txbatch.core.records.fields import Field, parse_fields
from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.spouts.tables import description, server, stretches
from txbatch.spouts.tables.connection import Session, reading
from txbatch.spouts.tables.copy_text import Copy
from txbatch.spouts.tables.planning import Look
from txbatch.spouts.tables.stretches import Part

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.records.declared import Fields

# What a row takes, where nobody knows.
ROW_BYTES = 100
# From this attempt on, one task reads each part.
ALONE_FROM = 3


def _names_zone(timezone: str) -> bool:
    """Return False for an offset: PostgreSQL and most people count its sign the other way round."""
    return re.search(r"\d", timezone) is None or timezone in zoneinfo.available_timezones()


class ReadsTable:
    """A part of the spouts of a table: the table of a source, its fields, and the rows by tasks of Spark."""

    remote = True
    # True: a changed row is read again.
    changing = False
    fields: str
    variables: tuple[str, ...]

    def __init__(
        self, table: str, fields: Fields, source: str, timezone: str | None, accept: str | Sequence[str]
    ) -> None:
        self.table, self.fields, self.source, self.timezone = table, fields_ddl(fields), source, timezone
        self.accept = frozenset([accept] if isinstance(accept, str) else accept)
        self.variables = (settings.source_variable(source),)
        schema, _, name = str(table).partition(".")
        if not (schema and name) or "\0" in name + schema:
            raise InvalidOption(
                f"{type(self).__name__}: {table!r} is no table; write schema and table, such as 'shop.sale'"
            )
        if timezone is not None and not _names_zone(timezone):
            raise InvalidOption(
                f"{type(self).__name__}: timezone={timezone!r} is no name of a time zone, and PostgreSQL takes UTC+2 for two "
                "hours west of UTC; write a name such as 'Europe/Oslo', or 'Etc/GMT-2' for two hours east"
            )
        parse_fields(self.fields)

    def session(self) -> AbstractContextManager[Session]:
        """Return a context manager of a session on the source."""
        return reading(self.source, settings.source_url(self.source), self.table)

    def reach(self, offsets: Mapping[str, Metadata]) -> str | None:
        """Describe who reads the table. Raise the errors of planning, before a run does."""
        with self.session() as session:
            self._look(session)
            (role,) = session.row("SELECT current_user::text")
        return f"{self.table} (source {self.source!r}) is read by the role {role!r}, which can write in no ledger"

    def _look(self, session: Session) -> Look:
        return Look(session, self.table, self._fields, self.timezone, changing=self.changing)

    @property
    def _fields(self) -> Sequence[Field]:
        return parse_fields(self.fields)

    def _checked(self, session: Session, ranges: Iterable[Metadata]) -> description.Table:
        """Return the table, which must take the fields, on a server with the history of all ranges."""
        table = description.describe(session, self.table, changing=self.changing)
        description.check(session, table, self._fields, self.timezone)
        now = server.look(session)
        for range_ in ranges:
            server.check(session.of, now, table.oid, range_, self.accept)
        return table

    def _copy(self, session: Session, key: Sequence[str]) -> Copy:
        url = settings.source_url(self.source)
        return Copy(self.source, url, self.table, self._fields, key, server.place(session))

    def _rows(
        self,
        spark: SparkSession,
        session: Session,
        table: description.Table,
        parts: Sequence[Part],
        attempt: TransactionAttempt,
        *,
        labels: bool,
    ) -> DataFrame:
        """Return the rows of parts of the table, by tasks with a connection each; `labels`: each row with its part's label.

        Where rows are updated all the time, only a task that reads a part alone reads the part as of one moment: a late attempt
        reads in that way.
        """
        cores = spark.sparkContext.defaultParallelism if attempt.attempt_id < ALONE_FROM else None
        cut = stretches.cut(session, table, self._fields, self.timezone, parts, cores)
        key = [name for name, _ in table.key] or [self._fields[0].name]
        copy = self._copy(session, key)

        def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow

            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for rows in copy.read(cut[number]):
                        label = pyarrow.repeat(pyarrow.scalar(cut[number].label), len(rows))
                        yield rows.append_column(PARTITION_COLUMN, label) if labels else rows

        columns = f"{self.fields}, {PARTITION_COLUMN} string" if labels else self.fields
        return spark.range(0, len(cut), 1, len(cut)).mapInArrow(read, columns)
