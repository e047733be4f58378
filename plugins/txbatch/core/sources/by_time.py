"""What spouts by time have in common: which times are plausible, and which intervals a date may lie in.

>>> bounds("Spout", ("1971-01-01", "2100-01-01"))[0].isoformat()
'1971-01-01T00:00:00+00:00'
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from datetime import time as time_of_day

from txbatch.core.errors import InvalidOption, InvalidSchedule

# Epochs in another unit than was meant, and times without a date, lie outside.
PLAUSIBLE = ("1971-01-01", "2100-01-01")
MIDNIGHT = time_of_day()


def bounds(of: str, plausible: tuple[str, str]) -> tuple[datetime, datetime]:
    """Return the two plausible dates as moments. Raise DefinitionError for other values; `of` names the spout."""
    try:
        first, last = (datetime.fromisoformat(each) for each in plausible)
        low, high = (each if each.tzinfo else each.replace(tzinfo=UTC) for each in (first, last))
        right = low < high
    except (TypeError, ValueError):
        right = False
    if not right:
        raise InvalidOption(f"{of}: plausible={plausible!r} is no pair of dates such as {PLAUSIBLE}")
    return low, high


def check_days(of: str, time: str, interval: Sequence[str]) -> None:
    """Refuse an interval that cuts days, if the time is a date: some of the days' records, or none, would be counted."""
    moments = [datetime.fromisoformat(moment).astimezone(UTC) for moment in interval]
    if any(moment.time() != MIDNIGHT for moment in moments):
        raise InvalidSchedule(
            f"{of}: {time!r} is a date, which lies in an interval of whole days in UTC alone, not in "
            f"{'/'.join(interval)}; schedule it by days of UTC"
        )
