"""JSON lines, strictly: an object a line, with each declared field once, in the declared type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txbatch.arrow import arrow_type
from txbatch.core.errors import BadText, InvalidName
from txbatch.core.records.fields import FLOATING_TYPES, INTEGER_TYPES, Field
from txbatch.formats import cells, json_misfit, times
from txbatch.formats.misfit import BadValue, Misfit

# The field of times, and which of a block's times are wanted.
Keep = tuple[str, Callable[[pa.Array], pa.Array]]

_BLANKS = b" \t\r"
_BITS = {"smallint": 16, "int": 32, "bigint": 64}
_TYPES = {"string": str, "binary": bytes, "boolean": bool, "double": float, "date": str, "timestamp": str}
_DIGITS = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_text = msgspec.json.Decoder(str).decode
_QUOTED_NUMBER = re.compile(rb'"-?\d+(\.\d+)?([eE][+-]?\d+)?"')
# From the first such escape of a text to its end, and the colon behind a key: it never looks at a byte twice.
_ESCAPED = re.compile(rb'\\[u/][^"\\]*+(?:\\.[^"\\]*+)*+"(\s*+:)?')


def decode(
    data: bytes,
    fields: Sequence[Field],
    options: Mapping[str, Any],
    keep: Keep | None = None,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> pa.RecordBatch:
    """Return the records of whole lines, without blank lines. Members without a field are passed over; an optional field without
    a member is what `given` has, or null.

    `keep` chooses records by time. Misfit names the first line that is not one object, or a field that is missing or unlike
    the declaration.
    """
    lines = _Lines(data, tuple(fields), options, given)
    records = lines.records()
    numbers: Sequence[int] = range(len(records))
    done: dict[str, pa.Array] = {}
    if keep is not None:
        time, wanted = keep
        values = lines.column(time, records, numbers)
        mask = lines.checked(time, numbers, lambda: wanted(values))
        chosen = mask.to_pylist()
        records, numbers = list(compress(records, chosen)), list(compress(numbers, chosen))
        done[time] = values.filter(mask)
    names = [field.name for field in fields]
    return pa.record_batch([done[n] if n in done else lines.column(n, records, numbers) for n in names], names=names)


@dataclass(frozen=True, slots=True)
class _Member:
    """Reads a field off a record. Numbers that must not go through a double are kept in the written form."""

    attribute: str
    type: str
    optional: bool
    as_written: bool

    def values(self, records: Sequence[Any]) -> list[Any]:
        found = list(map(attrgetter(self.attribute), records))
        return [None if value is msgspec.UNSET else value for value in found] if self.optional else found

    def given(self, records: Sequence[Any]) -> int:
        """Return the number of records with the member."""
        if not self.optional:
            return len(records)
        return sum(getattr(record, self.attribute) is not msgspec.UNSET for record in records)


class _Lines:
    """Whole lines, and the values read from the lines."""

    def __init__(
        self, data: bytes, fields: tuple[Field, ...], options: Mapping[str, Any], given: Mapping[str, Any]
    ) -> None:
        self.data, self.fields, self.options, self.given = data, fields, options, given
        self.quoted_numbers = bool(options.get("quoted_numbers"))
        self.members, self.decode = _decoder(
            fields,
            tuple(options.get("optional") or ()),
            tuple(options.get("numbers_as_text") or ()),
            self.quoted_numbers,
            bool(options.get("unit")),
        )

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines that are not blank."""
        return (line for line in self.data.split(b"\n") if line.strip(_BLANKS))

    def records(self) -> list[Any]:
        """Return a record for each line."""
        self._check_utf8()
        try:
            records = [self.decode(line) for line in self]
        except (ValueError, RecursionError):
            raise self._first_misfit() from None
        if not self._each_key_once(records):
            self._check_keys(records)
        self._check_capitals(records)
        return records

    def column(self, name: str, records: Sequence[Any], numbers: Sequence[int]) -> pa.Array:
        """Return a field of the records; `numbers` are the records' numbers in the block."""
        member = self.members[name]
        if name in self.given:
            return self.checked(name, numbers, lambda: self._agreeing(name, member, records))
        return self.checked(name, numbers, lambda: self._array(member.values(records), member))

    def _agreeing(self, name: str, member: _Member, records: Sequence[Any]) -> pa.Array:
        """Return the given value for each record; a record with the member must have that value."""
        values, given = self._array(member.values(records), member), self.given[name]
        lacks = pa.array([getattr(record, member.attribute) is msgspec.UNSET for record in records], pa.bool_())
        return cells.agreeing(pc.if_else(lacks, pa.scalar(given, values.type), values), given)

    def checked(self, name: str, numbers: Sequence[int], make: Callable[[], pa.Array]) -> pa.Array:
        """Return a field's values. An error names the misfit value and the value's line."""
        try:
            return make()
        except BadValue as bad:
            line, text = self._found(numbers[bad.index])
            raise Misfit(line, bad.reason, name, json_misfit.value_of(text, name)) from None

    def _array(self, values: Sequence[Any], member: _Member) -> pa.Array:
        if member.as_written and member.type == "string":
            return pa.array(self._texts_and_numbers(values), pa.string())
        if member.as_written:
            return cells.cast(self._texts(values, member.type), member.type, self.options)
        if member.type in ("timestamp", "date"):
            return times.parse(pa.array(values, pa.string()), member.type, self.options)
        return pa.array(values, arrow_type(member.type))

    def _texts(self, raw: Sequence[Any], type_: str) -> pa.Array:
        """Return numbers in the written form, null as null. Raise BadValue for anything else."""
        texts = [b"null" if value is None else bytes(value) for value in raw]
        for index, text in enumerate(texts):
            if text[:1] in b'"tf{[':
                if not (self.quoted_numbers and _QUOTED_NUMBER.fullmatch(text)):
                    raise BadValue(index, json_misfit.unlike(json_misfit.parsed(text), type_, self.options))
                texts[index] = text[1:-1]
        strings = [None if text == b"null" else text for text in texts]
        return pa.array(strings, pa.binary()).cast(pa.string())

    def _texts_and_numbers(self, raw: Sequence[Any]) -> Iterator[str | None]:
        """Yield texts, and numbers by their digits. Raise BadValue for anything else, and for an exponent."""
        for index, value in enumerate(raw):
            text = b"null" if value is None else bytes(value)
            if text == b"null":
                yield None
            elif _DIGITS.fullmatch(text):
                yield text.decode()
            elif text[:1] == b'"':
                try:
                    yield _text(text)
                except (ValueError, RecursionError):
                    raise BadValue(index, json_misfit.fault(text, "string", self.options)) from None
            else:
                raise BadValue(index, json_misfit.fault(text, "string", self.options))

    def _found(self, number: int) -> tuple[int, bytes]:
        """Return the line of a record by number."""
        filled = ((line, text) for line, text in enumerate(self.data.split(b"\n")) if text.strip(_BLANKS))
        return next(found for record, found in enumerate(filled) if record == number)

    def _check_utf8(self) -> None:
        try:
            if not self.data.isascii():
                self.data.decode()
        except UnicodeDecodeError as error:
            byte, line = f"0x{self.data[error.start]:02x}", self.data.count(b"\n", 0, error.start)
            raise Misfit(
                line,
                f"has the byte {byte}, which is not UTF-8, as JSON is; write the file as UTF-8",
                kind=BadText,
            ) from None

    def _first_misfit(self) -> Misfit:
        for number, text in enumerate(self):
            try:
                self.decode(text)
            except (ValueError, RecursionError) as error:
                return json_misfit.misfit(self._found(number)[0], text, self.fields, self.options, error)
        raise AssertionError("a line was refused, and then none was")

    def _each_key_once(self, records: Sequence[Any]) -> bool:
        """Return whether the keys are as many as the found fields, so no key stands twice; for all lines together.

        A key stands before a colon; within texts there may be more colons, never fewer.
        """
        text = np.frombuffer(self.data, np.uint8)
        before = np.bincount(text[:-1][text[1:] == ord(":")], minlength=256)[list(b'" \t\r')]
        return bool(before.sum() == sum(member.given(records) for member in self.members.values()))

    def _check_keys(self, records: Sequence[Any]) -> None:
        """Refuse a field present twice in an object: the decoder takes the last.

        Only lines with a field's name twice, or a key written with escapes, are looked at.
        """
        escaped = _has_escaped_key(self.data)
        quoted = {f'"{name}"'.encode(): member for name, member in self.members.items()}
        doubtful = [
            name for name, member in quoted.items() if escaped or self.data.count(name) != member.given(records)
        ]
        for number, line in enumerate(self if doubtful else ()):
            suspect = any(line.count(name) > 1 for name in doubtful) or (escaped and _has_escaped_key(line))
            if suspect and (twice := json_misfit.twice(line, self.fields)):
                raise Misfit(self._found(number)[0], twice)

    def _check_capitals(self, records: Sequence[Any]) -> None:
        """Refuse an object with an optional field in other capitals."""
        lacking = {name: member for name, member in self.members.items() if member.given(records) < len(records)}
        if not lacking:
            return
        escaped, lowered = _has_escaped_key(self.data), self.data.decode().lower()
        for name, member in lacking.items():
            quoted = f'"{name}"'.lower()
            if not escaped and quoted not in lowered:
                continue
            for number, (record, line) in enumerate(zip(records, self, strict=True)):
                lacks = getattr(record, member.attribute) is msgspec.UNSET
                suspect = lacks and (quoted in line.decode().lower() or (escaped and _has_escaped_key(line)))
                if suspect and (other := json_misfit.other_capitals(line, name)):
                    raise Misfit(self._found(number)[0], other)


def _has_escaped_key(text: bytes) -> bool:
    """Return whether a key of valid JSON is written with an escape, and may hide a field's name."""
    return any(found[1] for found in _ESCAPED.finditer(text))


@lru_cache(maxsize=16)
def _decoder(
    fields: tuple[Field, ...],
    optional: tuple[str, ...],
    numbers_as_text: tuple[str, ...],
    quoted_numbers: bool,
    epochs: bool,
) -> tuple[dict[str, _Member], Callable[[bytes], Any]]:
    """Return the members by name, and a decoder from a line to a record with the members."""

    def as_written(name: str, type_: str) -> bool:
        if type_ == "string":
            return name in numbers_as_text
        number = type_ in INTEGER_TYPES | FLOATING_TYPES
        return type_ not in (*_TYPES, *_BITS) or (quoted_numbers and number) or (epochs and type_ == "timestamp")

    members = {
        field.name: _Member(f"f{index}", field.type, field.name in optional, as_written(field.name, field.type))
        for index, field in enumerate(fields)
    }
    described: list[Any] = [
        (member.attribute, msgspec.Raw if member.as_written else _type(member.type) | None)
        + ((msgspec.UNSET,) if member.optional else ())
        for member in members.values()
    ]
    renamed = {member.attribute: name for name, member in members.items()}
    try:
        record = msgspec.defstruct("Record", described, rename=renamed, gc=False, kw_only=True)
    except ValueError as error:
        raise InvalidName(f"fields of JSON lines: {error}; rename the field") from None
    return members, msgspec.json.Decoder(record).decode


def _type(type_: str) -> Any:
    if type_ not in _BITS:
        return _TYPES[type_]
    bound = 2 ** (_BITS[type_] - 1)
    return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
