"""What committed batches lack, in words: partitions left out, partitions that are listed no more, and records given up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from txbatch.core.text import how_many, list_txids, one_line

# How many names of partitions the ledger is asked for, by stream: a source may have thousands.
NAMED = 5
_SAID = {
    "left_out": "left out since txid {since_txid}: a later batch reads all of {them}",
    "filled": "read again, with all that was left out since txid {since_txid}",
    "missing": "listed no more",
}


def describe_hole(row: Mapping[str, Any]) -> str:
    """Return the holes of one kind in one stream, in a line: `what`, the first `partitions`, how `many`, and the txids.

    >>> describe_hole({"what": "left_out", "stream": "in", "partitions": ["03"], "many": 1, "since_txid": 2})
    'of stream in, partition 03 is left out since txid 2: a later batch reads all of it'
    >>> describe_hole({"what": "missing", "stream": "in", "partitions": [*"abcde"], "many": 16_000})
    'of stream in, 16,000 partitions (a, b, c, d, e, ...) are listed no more'
    >>> describe_hole({"what": "given_up", "stream": "in", "partitions": ["03"], "many": 1, "txids": [7]})
    'of stream in, records of partition 03 were given up by txid 7'
    """
    which, one = _which(row), row["many"] == 1
    if row["what"] == "given_up":
        said = f"records{which and f' of {which}'} were given up by {list_txids(row['txids'])}"
    else:
        told = _SAID[row["what"]].format(them="it" if one else "them", since_txid=row.get("since_txid"))
        said = f"{which} {'is' if one else 'are'} {told}"
    return one_line(f"of stream {row['stream']}, {said}")


def describe_holes(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return holes as the end of a line; "" for none.

    >>> describe_holes([{"what": "filled", "stream": "in", "partitions": ["03"], "many": 1, "since_txid": 2}])
    '; of stream in, partition 03 is read again, with all that was left out since txid 2'
    """
    return "".join(f"; {describe_hole(row)}" for row in rows)


def _which(row: Mapping[str, Any]) -> str:
    """Return the partitions; "" for the only partition of a stream without partitions."""
    names, many = row["partitions"], row["many"]
    if names == [""]:
        return ""
    more = ", ..." if many > len(names) else ""
    return f"partition {names[0]}" if many == 1 else f"{how_many(many, 'partition')} ({', '.join(names)}{more})"
