"""The staged rows of a state in SQL: the COPY of a batch's partials, with totals and digests (R7, R21)."""

from __future__ import annotations

from collections.abc import Sequence

from txbatch.core.aggregates.merger import folded_columns
from txbatch.postgres.database.expressions import listed, pg_name, sql_type, total_sql
from txbatch.postgres.state.table_definitions import StateTables


class StagedStatements(StateTables):
    """The statements of the temporary table of partials."""

    def copy(self) -> str:
        """Return the COPY into the staged table, from CSV in which only null is unquoted and empty."""
        keys = self.keys if self.aggregate.keys else []
        return f"COPY {self.staged} ({listed([*keys, *self.partials])}) FROM STDIN (FORMAT csv)"

    def totals(self) -> str:
        """Return the query of row count and totals over the rows that the upsert reads (R7), in the order of the columns."""
        totals = ["count(*)::text", *(total_sql(column) for column in self.partial_columns)]
        return f"SELECT {listed(totals)} FROM {self.staged}"

    def longest_key(self) -> str:
        """Return the query of the largest staged key: the key's beginning, and its bytes."""
        text = f"concat_ws(', ', {', '.join(f'{key}::text' for key in self.keys)})"
        size = " + ".join(f"pg_column_size({key})" for key in self.keys)
        return f"SELECT left({text}, 40), octet_length({text}) FROM {self.staged} ORDER BY {size} DESC LIMIT 1"

    def once(self) -> str:
        """Return the query of the staged rows, with several rows of one key merged."""
        merges = folded_columns(self.aggregate.partial_merges, self.partials)
        merged = [
            f"CAST({merge} AS {sql_type(column.partial.type)}) AS {name}"
            for column, merge, name in zip(self.partial_columns, merges, self.partials, strict=True)
        ]
        return f"SELECT {listed([*self.keys, *merged])} FROM {self.staged} GROUP BY {listed(self.keys)}"

    def collapse(self, once: str) -> Sequence[str]:
        """Return the statements that replace the staged rows by the rows of the query `once`: one row for each key."""
        return (
            f"CREATE TEMP TABLE collapsed ON COMMIT DROP AS {once}",
            f"TRUNCATE {self.staged}",
            f"INSERT INTO {self.staged} SELECT * FROM pg_temp.collapsed",
            "DROP TABLE pg_temp.collapsed",
        )

    def digest(self) -> str:
        """Apart (R21), transactional: return the query of a digest of an attempt's staged rows, in whatever order they came.

        The digest is null if there are no rows. Sums of doubles are left out, as their last digits differ from attempt to
        attempt; values merged by Python are left out, too.
        """
        in_sql = [column for column in self.partial_columns if column.partial.merge.in_sql]
        names = [pg_name(column.name) for column in in_sql]
        merges = folded_columns([column.partial.merge for column in in_sql], names)
        merged = [
            merge if column.partial.exact else f"count({name})"
            for column, merge, name in zip(in_sql, merges, names, strict=True)
        ]
        merged += [f"count({name})" for name in self.partials if name not in names]
        by_key = f"SELECT {listed([*self.keys, *merged])} FROM {self.staged} GROUP BY {listed(self.keys)}"
        hashed = "left(encode(sha256(convert_to(to_jsonb(e)::text, 'UTF8')), 'hex'), 15)"
        return f"SELECT count(*) || ':' || sum(('x' || {hashed})::bit(60)::bigint) FROM ({by_key}) e"
