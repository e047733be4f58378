"""What a request may ask for: names, numbers, moments, and how many."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from txbatch.core.records.fields import encodable

TXID_MAX = 2**63 - 1
KEY_PARTS_MAX = 64
DAYS_MAX = 400
_TXID = re.compile(r"[0-9]{1,19}")
STATUSES = ("planned", "emitted", "committed", "aborted")


class Refused(Exception):
    """A request that cannot be answered as asked. The text is for the page."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window of time."""

    start: datetime
    end: datetime


def txid(given: str, what: str = "txid", first: int = 1) -> int:
    """Return a txid from its text. Raise Refused for any other text.

    >>> txid("7")
    7
    >>> txid("1e3")
    Traceback (most recent call last):
    ...
    txbatch.ui.asked.Refused: txid is a number from 1 to 9223372036854775807
    """
    number = int(given) if _TXID.fullmatch(given) else -1
    if not first <= number <= TXID_MAX:
        raise Refused(f"{what} is a number from {first} to {TXID_MAX}")
    return number


def limit(given: str | None, most: int) -> int:
    """Return how many rows are asked for; `most` if nothing is given. Raise Refused for less than one, or more than `most`."""
    if given is None:
        return most
    number = int(given) if _TXID.fullmatch(given) else 0
    if not 1 <= number <= most:
        raise Refused(f"limit is a number from 1 to {most}")
    return number


def status(given: str | None) -> str | None:
    """Return a status of batches, or None. Raise Refused for any other text."""
    if given is not None and given not in STATUSES:
        raise Refused(f"status is one of {', '.join(STATUSES)}")
    return given


def flag(given: str | None, what: str) -> bool:
    """Return true or false from its text; false if nothing is given. Raise Refused for any other text."""
    if given not in (None, "true", "false"):
        raise Refused(f"{what} is true or false")
    return given == "true"


def moment(given: str, what: str) -> datetime:
    """Return a moment from its text in ISO 8601, with an offset. Raise Refused for any other text.

    >>> moment("2013-01-01T05:00:00Z", "from")
    datetime.datetime(2013, 1, 1, 5, 0, tzinfo=datetime.timezone.utc)
    """
    try:
        found = datetime.fromisoformat(given)
        if found.tzinfo is None:
            raise ValueError(given)
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refused(f"{what} is a moment such as 2013-01-01T05:00:00Z") from None


def window(start: str | None, end: str | None, last: datetime | None) -> Window | None:
    """Return the window of time that is asked for; the month before `last` if nothing is given, None without `last`.

    Raise Refused for a window without a begin or an end, that ends before its begin, or is longer than `DAYS_MAX` days.
    """
    if start is None and end is None:
        return None if last is None else Window(last - timedelta(days=31), last)
    if start is None or end is None:
        raise Refused("from and to belong together")
    found = Window(moment(start, "from"), moment(end, "to"))
    if not timedelta() < found.end - found.start <= timedelta(days=DAYS_MAX):
        raise Refused(f"to is after from, by at most {DAYS_MAX} days")
    return found


def txids(first: str, last: str, most: int) -> tuple[int, int]:
    """Return the first and the last txid of some neighbours. Raise Refused for more than `most`."""
    low, high = txid(first, "first"), txid(last, "last")
    if not low <= high < low + most:
        raise Refused(f"last is at least first, and at most {most - 1} more")
    return low, high


def after(given: str) -> tuple[str, str]:
    """Return the stream and the partition after which a page begins. Raise Refused for any other text."""
    stream, slash, partition = given.partition("/")
    if given and not slash:
        raise Refused("after is the `next` of the page before")
    return stream, partition


def fit(texts: list[str]) -> None:
    """Raise Refused if a text cannot be in the database."""
    if any("\0" in each or not encodable(each) for each in texts):
        raise Refused("the request holds U+0000, or is not UTF-8")


def key(parts: list[str]) -> list[str]:
    """Return the parts of a key. Raise Refused for more than any state has."""
    if len(parts) > KEY_PARTS_MAX:
        raise Refused(f"a key has at most {KEY_PARTS_MAX} parts")
    return parts
