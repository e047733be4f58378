"""Arrow columns of messages: what Kafka gives of each, or the fields of a JSON object in its value.

Methods of `Message` are called by `map`, without a Python function for each message in between.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import BadRecord, BadText, OutOfRange
from txbatch.core.records.fields import Field
from txbatch.formats import json_lines
from txbatch.formats.misfit import Misfit
from txbatch.formats.options import Options
from txbatch.spouts.topics.messages import offset_of

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

_NO_TIME = 0
_LAST_MILLISECOND = 253_402_300_799_999  # of the year 9999


@dataclass(frozen=True, slots=True)
class Columns:
    """Makes Arrow of messages. `of` is the topic in errors."""

    of: str
    fields: Sequence[Field]
    format: str | None
    options: Options

    def batch(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """Return the messages in Arrow; raise BadRecord, or BadText, that names partition and offset."""
        import pyarrow as pa

        if self.format == "json":
            return self._objects(messages)
        names = [each.name for each in self.fields]
        return pa.record_batch([self._column(each, messages) for each in self.fields], names=names)

    def _column(self, of: Field, messages: Sequence[Message]) -> pa.Array:
        import pyarrow as pa
        from confluent_kafka import Message

        if of.name in ("key", "value"):
            return self._bytes(of, messages)
        if of.name == "timestamp":
            return self._times(messages)
        if of.name == "headers":
            return pa.array(list(map(_headers, messages)), pa.string())
        if of.name == "partition":
            return pa.array(list(map(Message.partition, messages)), pa.int32())
        return pa.array(list(map(Message.offset, messages)), pa.int64())

    def _bytes(self, of: Field, messages: Sequence[Message]) -> pa.Array:
        import pyarrow as pa
        from confluent_kafka import Message

        values: list[Any] = list(map(Message.key if of.name == "key" else Message.value, messages))
        found = pa.array(values, pa.binary())
        if of.type == "binary":
            return found
        try:
            text = found.cast(pa.string())
        except pa.ArrowInvalid:
            at = next(number for number, value in enumerate(values) if value is not None and not _is_text(value))
            raise BadText(
                f"{self._place(messages[at])}: its {of.name} is no UTF-8; declare {of.name} binary, and decode "
                "it in a function, whose failures quarantine takes"
            ) from None
        return text

    def _objects(self, messages: Sequence[Message]) -> pa.RecordBatch:
        lines = list[bytes]()
        for message in messages:
            value = message.value()
            if value is None or not value.strip():
                raise self._no_object(message, "has no value" if value is None else "is empty")
            if b"\n" in value:
                value = self._on_one_line(message, value)
            lines.append(value)
        try:
            return json_lines.decode(b"\n".join(lines) + b"\n", self.fields, self.options)
        except Misfit as misfit:
            place = self._place(messages[misfit.line])
            raise misfit.kind(
                f"{place}: {misfit}; take value as binary, parse it in a function, and quarantine what fails"
            ) from None

    def _on_one_line(self, message: Message, value: bytes) -> bytes:
        """Return an object without its line ends, none of which is within a text: JSON forbids that."""
        try:
            json.loads(value.decode())
        except ValueError:
            raise self._no_object(message, "has line ends, is no JSON") from None
        return value.replace(b"\n", b" ")

    def _times(self, messages: Sequence[Message]) -> pa.Array:
        import pyarrow as pa

        found = list(map(_milliseconds, messages))
        for number, milliseconds in enumerate(found):
            if milliseconds is not None and milliseconds > _LAST_MILLISECOND:
                raise OutOfRange(
                    f"{self._place(messages[number])}: its time, {milliseconds} ms since 1970, is after the year 9999; leave "
                    "timestamp out of the fields, and take the time from the value"
                )
        return pa.array(found, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))

    def _no_object(self, message: Message, why: str) -> BadRecord:
        return BadRecord(
            f"{self._place(message)}: {why}, and is no JSON object; take value as binary, and parse it in a function"
        )

    def _place(self, message: Message) -> str:
        return f"{self.of}, partition {message.partition()}, offset {offset_of(message)}"


def _milliseconds(message: Message) -> int | None:
    """Return the time of a message in milliseconds since 1970; None for a message without a time."""
    kind, milliseconds = message.timestamp()
    return None if kind == _NO_TIME or milliseconds < 0 else int(milliseconds)


def _headers(message: Message) -> str | None:
    """Return the headers as JSON: a list of pairs, as a name may come twice. A value that is no UTF-8 is in base64."""
    headers: Any = message.headers()
    if not headers:
        return None
    return json.dumps([[name, _shown(value)] for name, value in headers], ensure_ascii=False)


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    return value.decode() if _is_text(value) else {"base64": b64encode(value).decode()}


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
