"""OpaquePostgresSpout: the newest version of each row of a table in PostgreSQL whose rows change."""

from __future__ import annotations

from collections.abc import Mapping

from txbatch.core.batch.transaction import Metadata
from txbatch.core.sources.spout import SpoutKind
from txbatch.spouts.postgres_table import PostgresSpout


class OpaquePostgresSpout(PostgresSpout):
    """Reads the rows that are added to a table of PostgreSQL or changed there: the newest version of each row.

    Parameters are those of PostgresSpout; the table is prepared by `txbatch source prepare --changing`. Versions between two
    batches, and rows that are deleted, are not seen. States take values for which a row may come again, such as Max, MaxBy and
    CollectSet. Opaque: another attempt reads without the rows that have changed since, and a later batch has them.
    """

    kind = SpoutKind.OPAQUE
    _spout = "OpaquePostgresSpout"
    changing = True
    repeats = True

    @property
    def leaves_out(self) -> bool:
        """Return False: a table is one place, and while its server is away, there is nothing to commit."""
        return False

    def unreadable(self, metadata: Metadata) -> Mapping[str, str]:
        """Return nothing: no part of a table is left out."""
        return {}
