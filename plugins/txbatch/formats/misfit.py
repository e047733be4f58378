"""A decoder's report of a record unlike the declaration; the scan adds file and line."""

from __future__ import annotations

from txbatch.core.errors import BadRecord

VALUE_LENGTH_MAX = 60


class BadValue(Exception):
    """The value at an index of a column does not fit the type; the reason is a predicate: `is no int: it is empty`."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index, self.reason = index, reason


class Misfit(Exception):
    """A record unlike the declaration. `line` counts from 0 within the decoded bytes.

    With a field, the reason is a predicate of the value: `is no int: it is empty`. `kind` is the class of the error.
    """

    def __init__(
        self,
        line: int,
        reason: str,
        field: str | None = None,
        value: object = None,
        *,
        kind: type[BadRecord] = BadRecord,
    ) -> None:
        super().__init__(line, reason, field, value)
        self.line, self.reason, self.field, self.value, self.kind = line, reason, field, value, kind

    def __str__(self) -> str:
        return (
            self.reason
            if self.field is None
            else f"field {describe_value(self.field)}: {describe_value(self.value)} {self.reason}"
        )


def describe_value(value: object) -> str:
    """Return a record's value in a short line, harmless to a terminal."""
    if value is None:
        return "null"
    if not isinstance(value, str | bytes):
        value = str(value)
    return repr(value[:VALUE_LENGTH_MAX]) + ("..." if len(value) > VALUE_LENGTH_MAX else "")
