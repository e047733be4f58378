"""Late records that do not count like all others: left out, or kept in rows (R25)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from txbatch.core.errors import InvalidWindow, SourceChanged
from txbatch.core.records.fields import fitted_name
from txbatch.core.state.append import ROW_KEYS, AppendState, values_of
from txbatch.core.topology.checks import check_aggregate
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.walks import windows
from txbatch.core.topology.watermarked import policy
from txbatch.core.windows.watermark import MERGE, SIDE

if TYPE_CHECKING:
    from txbatch.core.batch.manifest import StagedState


class LateState(AppendState):
    """The rows of the late records of a state; the state itself does not count late records.

    A state with history, but without a watermark so far, may begin to keep late rows.
    """

    def __init__(self, of: PersistentAggregate) -> None:
        super().__init__(fitted_name(of.state.name, "_late"), database=of.state.database)
        self.was = None if of.state.was is None else fitted_name(of.state.was, "_late")
        self.since, self.of = "now", of


def kept_aside(aggregate: PersistentAggregate) -> list[PersistentAggregate]:
    """Return the aggregates that keep the late records of a state: none, unless the state's watermark has `late="side"`.

    DefinitionError if a record that reaches the state cannot be told to be late or in time.
    """
    _check_window(aggregate)
    if aggregate.late != SIDE:
        return []
    values = values_of(aggregate.stream.fields)
    return [
        check_aggregate(replace(aggregate, keys=ROW_KEYS, state=LateState(aggregate), aggregates=values, remove=None))
    ]


def _check_window(aggregate: PersistentAggregate) -> None:
    of = f"state {aggregate.state.name!r}"
    if aggregate.window is None and windows(aggregate.stream) and (late := policy(of, aggregate.stream)) != MERGE:
        raise InvalidWindow(
            f"{of}: late={late!r} leaves records out by their window, which is no key here; group by the window last, or say "
            "late='merge'"
        )


def check_kept_aside(
    topology: str, aggregates: Iterable[PersistentAggregate], staged: Mapping[str, StagedState]
) -> None:
    """TransientError if the records kept aside are not the late records of a state: each set was read by itself (R7)."""
    for aside in (each.state for each in aggregates if isinstance(each.state, LateState)):
        kept, late = staged[aside.name].kept, staged[aside.of.state.name].late
        if kept != late:
            raise SourceChanged(
                f"{topology}: of state {aside.of.state.name!r} {late} records were late, and {kept} were kept aside; the source "
                "changed meanwhile: emit again"
            )
