"""Values of each type, in order, of which the texts must be in the same order."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

VALUES: dict[str, list[Any]] = {
    "boolean": [None, False, True],
    "smallint": [None, -(2**15), -10, -9, -1, 0, 1, 9, 10, 2**15 - 1],
    "bigint": [None, -(2**63), -(2**31), -10, -9, 0, 9, 10, 100, 2**63 - 1],
    "decimal(10,2)": [
        None,
        *map(Decimal, ("-99999999.99", "-1.51", "-1.50", "-0.01", "0.00", "0.10", "0.11", "12.00")),
    ],
    "decimal(38,38)": [None, *map(Decimal, ("-0." + "9" * 38, "-1E-38", "0", "1E-38", "0." + "9" * 38))],
    "decimal(38,0)": [None, *map(Decimal, ("-" + "9" * 38, "-1000", "0", "10", "1" + "0" * 37, "9" * 38))],
    "double": [
        *(None, float("-inf"), -1e300, -2.5, -0.1, -5e-324, 0.0, 5e-324, 2.2250738585072014e-308, 0.1, 0.25, 1.0, 3.0),
        *(1e22, 1.7976931348623157e308, float("inf"), float("nan")),
    ],
    "float": [None, float("-inf"), -1.5, 0.0, 0.25, 1.0, 65536.0, float("inf"), float("nan")],
    "string": [
        *(None, "", "\x01", "\x01\x01", "\x02", "\x02\x03", "\x03", " ", "'", "B", "a", 'a"b', "a\\", "\u00e9"),
        *("\uffff", "\U0001f600"),
    ],
    "binary": [None, b"", b"\x00", b"\x00\x01", b"\x01", b"a", b"\xff"],
    "date": [None, date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "timestamp": [
        None,
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
}
