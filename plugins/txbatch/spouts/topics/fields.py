"""The fields that a message of Kafka has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txbatch.core.errors import InvalidOption
from txbatch.core.records.fields import Field

# What a message has, and the types that a field of that name may have.
TYPES: Mapping[str, tuple[str, ...]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "timestamp": ("timestamp",),
    "partition": ("int",),
    "offset": ("bigint",),
    "headers": ("string",),
}


def check_fields(of: str, fields: Sequence[Field]) -> None:
    """Raise InvalidOption for a field that no message has, or has in another type."""
    for each in fields:
        types = TYPES.get(each.name)
        if types is None:
            raise InvalidOption(
                f"{of}: a message has no {each.name!r}; it has {', '.join(TYPES)}; of a value that is an object of JSON, say "
                'format="json"'
            )
        if each.type not in types:
            raise InvalidOption(f"{of}: {each.name!r} is no {each.type}; declare it {' or '.join(types)}")
