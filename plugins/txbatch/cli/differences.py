"""The rows in which two countings of a state differ, as texts: the key of an example, and both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txbatch.core.text import one_line

# The maximum length of a printed value: a set or a sketch may have thousands of numbers. --json has the whole value.
VALUE_MAX = 200


def key_told(example: Mapping[str, Any]) -> str:
    """Return the key of an example of differing rows, or a text for a global value."""
    return ", ".join(f"{name} {value}" for name, value in example["key"].items()) or "the value"


def sides_told(example: Mapping[str, Any]) -> tuple[str, str]:
    """Return both sides of an example with the same columns. If both sides have a row, return only the differing values.

    >>> sides_told({"stored": {"count": "1", "turnover": "5"}, "recomputed": {"count": "2", "turnover": "5"}})
    ('count=1', 'count=2')
    """
    stored, again = example["stored"], example["recomputed"]
    if stored is None or again is None:
        return values_told(stored), values_told(again)
    differ = [name for name, value in stored.items() if value != again[name]]
    return values_told({name: stored[name] for name in differ}), values_told({name: again[name] for name in differ})


def values_told(values: Mapping[str, Any] | None) -> str:
    """Return one side of an example, with long values cut; `nothing` if no row exists."""
    if values is None:
        return "nothing"
    return ", ".join(
        f"{name}={'null' if value is None else one_line(value, VALUE_MAX)}" for name, value in values.items()
    )
