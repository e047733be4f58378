"""The closing of windows (R26): a window closes once the watermarks of the new batch and all open plans reach the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from txbatch.core.windows.watermark import BEGIN

if TYPE_CHECKING:
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.core.windows.timed import Timed

# By stream.
Marks = Mapping[str, int]
# The key with the starts of windows, or the value with the ends of sessions; the first start or end closed by a commit, and
# the first start or end still open.
Closed = tuple[str, int, int]


def decide_closing(
    aggregates: Sequence[PersistentAggregate], before: Marks, after: Marks, open_plans: Iterable[Marks]
) -> tuple[dict[str, int], dict[str, Closed]]:
    """Return up to when the windows of each state are closed after a commit, and the windows closed by the commit (R26).

    `before` has the closing times until now, `after` the watermarks since the commit. Windows stay open while an open plan may
    still count in time; an open plan without a watermark keeps all windows open. A closing time never goes back, even if a
    state has no watermark for some time.
    """
    plans, found = list(open_plans), dict[str, Closed]()
    closed_to = {name: before[name] for name in (each.state.name for each in aggregates) if name in before}
    for aggregate in (each for each in aggregates if each.closes):
        state, window = aggregate.state.name, cast("Timed", aggregate.window)
        was, marks = closed_to.get(state), [aggregate.watermark_of(each) for each in (after, *plans)]
        known = [each for each in marks if each is not None]
        now = largest([was, min(known) if len(known) == len(marks) else None])
        if now is None:
            continue
        closed_to[state] = now
        first = BEGIN if was is None else max(BEGIN, window.first_open(was))
        end = window.first_open(now)
        if first < end:
            found[state] = (window.closes_by, first, end)
    return closed_to, found


def largest(times: Iterable[int | None]) -> int | None:
    """Return the largest known time; None if no time is known."""
    return max((each for each in times if each is not None), default=None)
