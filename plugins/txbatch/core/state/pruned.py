"""The rows of a state pruned by retention (R22), as spans of positions: each after a txid and up to a later txid.

A state has several spans if a definition stopped pruning and began again: rows folded in between stay.

>>> more_pruned((), 4), more_pruned(((0, 4),), 9), more_pruned(begun(((0, 4),), 6), 9)
(((0, 4),), ((0, 9),), ((0, 4), (6, 9)))
>>> pruned_to(((0, 4), (6, 9))), pruned_to(begun((), 6)), pruned_to(())
(9, 0, 0)
"""

from __future__ import annotations

from collections.abc import Iterable

Spans = tuple[tuple[int, int], ...]


def begun(spans: Spans, horizon: int) -> Spans:
    """Return the spans of a state with pruning from a horizon on: rows folded up to the horizon stay."""
    return (*(each for each in spans if each[0] < each[1]), (horizon, horizon))


def more_pruned(spans: Spans, horizon: int) -> Spans:
    """Return the spans after all rows up to a horizon have gone, except rows from before pruning began."""
    *before, (after, _) = spans or ((0, 0),)
    return (*before, (after, horizon))


def pruned_to(spans: Spans) -> int:
    """Return the last position with pruned rows; 0 if no rows have gone."""
    return max((last for after, last in spans if after < last), default=0)


def has_gone(spans: Spans, position: int) -> bool:
    """True if the rows of a position have gone.

    >>> [has_gone(((0, 4), (6, 9)), position) for position in (4, 5, 6, 7)]
    [True, False, False, True]
    """
    return any(after < position <= last for after, last in spans)


def stored_spans(stored: Iterable[Iterable[int]] | None) -> Spans:
    """Return the spans of a stored JSON value; for null, no spans.

    >>> stored_spans([[0, 4]]), stored_spans(None)
    (((0, 4),), ())
    """
    return tuple((after, last) for after, last in stored or ())
