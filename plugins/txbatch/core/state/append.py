"""AppendState: the records of each batch, one row for each, by the position of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txbatch.core.aggregates.aggregator import Max
from txbatch.core.errors import InvalidArgument, InvalidRetention, OutOfPlace
from txbatch.core.records.fields import Field, unique
from txbatch.core.state.checks import check_files
from txbatch.core.state.files import Files
from txbatch.core.state.state import OpaqueState

if TYPE_CHECKING:
    from txbatch.core.aggregates.aggregator import CombinerAggregator

# The key of a record's row: the batch's position; a digest of the fields; and a number among equal records, from 1.
BATCH, RECORD, COPY = Field("batch", "bigint"), Field("record", "string"), Field("copy", "bigint")
ROW_KEYS = (BATCH, RECORD, COPY)
RECORD_CHARACTERS = 32


class AppendState(OpaqueState):
    """Records as they are, not aggregated: `Stream.persist` appends the records of each batch to the table `state.<name>`.

    A row has the fields of a record behind the keys `batch`, `record` and `copy`. A restate of a batch replaces the batch's rows.
    With `prune`, the rows of a batch go when retention folds the batch: `Topology(keep=...)` sets the time (R22).
    `files` is a folder for a copy of each committed batch as a file, such as `ParquetFiles("/lake/sold")`.
    """

    appends = True

    def __init__(
        self,
        name: str,
        *,
        prune: bool = False,
        contributions: bool | None = None,
        database: str | None = None,
        files: Files | None = None,
    ) -> None:
        super().__init__(name, contributions=contributions, database=database)
        if prune and not self.contributions:
            raise InvalidRetention(
                f"state {name!r} keeps no contributions, by which retention knows what to prune: leave prune out, or keep them"
            )
        self.prune = prune
        self.files = None if files is None else check_files(self, files, pruned=prune)


class OfRecord(Max):
    """A field of a row's only record."""


def values_of(fields: Sequence[Field]) -> Mapping[str, CombinerAggregator]:
    """Return the values of a row, one for each field. Raise DefinitionError if a field is named like a key of the row."""
    unique((each.name for each in (*ROW_KEYS, *fields)), "column")
    return {field.name: OfRecord(field.name) for field in fields}


def check_appends(state: Any) -> None:
    """Raise DefinitionError if a state takes no records."""
    if not isinstance(state, AppendState):
        raise InvalidArgument(f"{state!r} takes no records; persist records to an AppendState('name')")


def check_aggregates(state: Any) -> None:
    """Raise DefinitionError if a state takes records, and no aggregates."""
    if isinstance(state, AppendState):
        raise OutOfPlace(
            f"state {state.name!r} is an AppendState, which keeps records as they are: persist a stream to it, or aggregate "
            "into an OpaqueState"
        )
