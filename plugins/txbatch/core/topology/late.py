"""What becomes of late records where they do not count like all others: they are left out, or kept as rows (R25)."""

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
    """The rows of the late records of a state, which does not count them. What had no watermark may begin one."""

    def __init__(self, of: PersistentAggregate) -> None:
        super().__init__(fitted_name(of.state.name, "_late"), database=of.state.database)
        self.was = None if of.state.was is None else fitted_name(of.state.was, "_late")
        self.since, self.of = "now", of


def kept_aside(aggregate: PersistentAggregate) -> list[PersistentAggregate]:
    """Return what keeps the late records of a state: nothing, unless its watermark says `late="side"`.

    DefinitionError where nobody could say of what reaches the state whether it is late.
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
    """TransientError where other records are kept aside than a state found late: each was read by itself (R7)."""
    for aside in (each.state for each in aggregates if isinstance(each.state, LateState)):
        kept, late = staged[aside.name].kept, staged[aside.of.state.name].late
        if kept != late:
            raise SourceChanged(
                f"{topology}: of state {aside.of.state.name!r} {late} records were late, and {kept} were kept aside; the source "
                "changed meanwhile: emit again"
            )
