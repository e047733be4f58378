"""ReducerAggregator: a value that goes through the records of a group one by one, within a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

from txbatch.core.errors import BadFunction, BadResult, MissingPart, TxbatchError
from txbatch.core.records.comparing import key_of
from txbatch.core.records.fields import checked_type
from txbatch.core.records.python_types import misfit
from txbatch.core.text import describe_record, one_line, repr_of, text_of

Record = dict[str, Any]
_SHOWN_MAX = 100


class ReducerAggregator:
    """Trident's ReducerAggregator: `init` returns the value of no records, `reduce` the value with one record more, a dict.

    `result` is the type of the value. The records of a group come in the order of all their fields, nulls last, and every
    attempt makes the same value. A reducer is for `aggregate` alone: the values of two batches for a key cannot be merged.
    """

    result: str | None = None

    def init(self) -> Any:
        """Return the value of no records, a new value at each call."""
        raise MissingPart(f"{type(self).__name__} defines no init")

    def reduce(self, value: Any, record: Record) -> Any:
        """Return a value with one record more."""
        raise MissingPart(f"{type(self).__name__} defines no reduce")


def reducer_type(of: str, name: str, reducer: ReducerAggregator) -> str:
    """Return the type of a reducer's value; DefinitionError if `result` is missing, or a type that no field can have."""
    if reducer.result is None:
        raise MissingPart(
            f'{of} {name}: {type(reducer).__name__} says not of what type it is; give it one, such as result = "bigint"'
        )
    return checked_type(reducer.result)


@dataclass(frozen=True, slots=True)
class Reducing:
    """The reducers' values for each key; `of` names the operation, `show` decides whether errors may show records."""

    of: str
    keys: tuple[str, ...]
    reducers: Mapping[str, ReducerAggregator]
    show: bool

    def rows(self, records: Iterable[Record]) -> Iterator[tuple[Any, ...]]:
        """Yield the key and the values of each group of records, which are sorted by key.

        Without keys, there is always one group, even of no records.
        """
        groups = groupby(records, key=lambda record: key_of(record[key] for key in self.keys))
        found = False
        for _, group in groups:
            found, first = True, next(group)
            yield (*(first[key] for key in self.keys), *self._reduced(chain([first], group)))
        if not (found or self.keys):
            yield tuple(self._reduced(()))

    def _reduced(self, records: Iterable[Record]) -> list[Any]:
        values = {name: each.init() for name, each in self.reducers.items()}
        for record in records:
            for name, reducer in self.reducers.items():
                values[name] = self._one_more(name, reducer, values[name], record)
        return [self._checked(name, value) for name, value in values.items()]

    def _one_more(self, name: str, reducer: ReducerAggregator, value: Any, record: Record) -> Any:
        try:
            return reducer.reduce(value, dict(record))
        except (TxbatchError, OSError, MemoryError):
            raise
        except Exception as error:
            told = (
                f"{type(error).__name__}: {text_of(error)} for the record {describe_record(record)}"
                if self.show
                else type(error).__name__
            )
            raise BadFunction(f"{self.of} {name}: reduce raised {told}; mend the job") from (
                error if self.show else None
            )

    def _checked(self, name: str, value: Any) -> Any:
        type_ = str(self.reducers[name].result)
        if why := misfit(value, type_):
            told = one_line(repr_of(value), _SHOWN_MAX) if self.show else f"a {type(value).__name__}"
            raise BadResult(
                f"{self.of} {name}: made {told}, declared {type_}: {why}; convert it there, or declare another type"
            )
        return value
