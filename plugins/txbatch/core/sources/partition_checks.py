"""What a spout says of its partitions, checked: their names, and the ranges that are planned next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import InvalidOption, InvalidPlan, SourceCutBack, SourceMissing
from txbatch.core.stored_json import canonical_json, is_range
from txbatch.core.text import list_first

if TYPE_CHECKING:
    from txbatch.core.batch.transaction import Metadata

# With the names of the topology and the stream, a partition's name must fit a row of an index.
PARTITION_BYTES_MAX = 2500
# The most missing partitions that a plan names: a plan is no place for all files that ever were.
MISSING_MAX = 100


def checked_names(of: str, named: Any) -> list[str]:
    """Return the names of partitions that a spout gave. `of` names the spout.

    DefinitionError for no list, or if a name is no string, empty, too long or repeated.
    """
    if isinstance(named, str) or not isinstance(named, Iterable):
        raise InvalidPlan(f"{of}: partitions() is {named!r}; return a list of names")
    names, seen = list(named), set[str]()
    for name in names:
        _check_name(of, name)
        if name in seen:
            raise InvalidPlan(f"{of}: partition {name!r} is named twice; each partition is read once, by its name")
        seen.add(name)
    return names


def _check_name(of: str, name: Any) -> None:
    if not isinstance(name, str):
        raise InvalidPlan(f"{of}: partition {name!r} is no string; name it '{name}'")
    if not name:
        raise InvalidPlan(f"{of}: partition {name!r} has no name; name each partition, also a single partition")
    if (size := len(name.encode(errors="surrogatepass"))) > PARTITION_BYTES_MAX:
        most = f"the ledger's index takes at most {PARTITION_BYTES_MAX:,}"
        raise InvalidPlan(f"{of}: partition {name[:80]!r}... has a name of {size:,} bytes; {most}")


def missing_of(of: str, vanish: str, known: Iterable[str], listed: Iterable[str]) -> list[str]:
    """Return the partitions with an offset that are listed no more, in order, at most `MISSING_MAX`; `of` names the spout.

    Raise SourceMissing if the spout refuses to plan without these partitions.

    >>> missing_of("Log", "tell", ["a", "b", "c"], ["b", "d"])
    ['a', 'c']
    """
    if vanish not in ("tell", "refuse", "normal"):
        raise InvalidOption(f"{of}: vanish={vanish!r} is none of 'tell', 'refuse' and 'normal'")
    missing = [] if vanish == "normal" else sorted({*known}.difference(listed))
    if missing and vanish == "refuse":
        raise SourceMissing(
            f"{of}: partitions that were read before are listed no more: {list_first(missing)}; give them back, or the "
            "right to see them; or say vanish='tell' of the spout, which goes on without them"
        )
    return missing[:MISSING_MAX]


def check_range(of: str, range_: Any, last: Metadata | None) -> None:
    """Refuse a range that does not follow a partition's last range.

    DefinitionError for a range without both ends, with a bad number of records, or with a start that is not the last range's
    end. TerminalError for offsets that went backwards.
    """
    if not is_range(range_):
        raise InvalidPlan(f"{of} was planned as {range_!r}; a range has 'start' and 'end'")
    start, end = range_["start"], range_["end"]
    if last is not None and start != last["end"] and canonical_json(start) != canonical_json(last["end"]):
        raise InvalidPlan(
            f"{of} was planned from {start}, but {last['end']} is next; records between them would be lost or counted twice"
        )
    if isinstance(start, int | float) and isinstance(end, int | float) and end < start:
        raise SourceCutBack(
            f"{of} went backwards: its records end at {end}, those from {start} are next; the source was cut off or made "
            "anew: restore it, or read it with a new topology"
        )
    planned_records(of, range_)


def planned_records(of: str, plan: Any) -> int | None:
    """Return the number of records in a range, or in the plan of an interval; None if unknown. DefinitionError for no number."""
    if not isinstance(plan, Mapping) or "records" not in plan:
        return None
    records = plan["records"]
    if type(records) is not int or records < 0:
        raise InvalidPlan(f"{of} was planned with {records!r} records; say how many as an int, or leave 'records' out")
    return records
