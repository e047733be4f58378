"""What a Python function may return for a field: nothing that would be rounded, cut or taken for something else."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import refused

from txbatch.arrow import arrow_array
from txbatch.core.errors import BadRecord
from txbatch.core.records.fields import Field

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        *[("int", value) for value in (2.7, 2.0, True, Decimal(2), Decimal("2.5"), "2", 2**31, NOON)],
        *[("bigint", value) for value in (2.5, 2**63, float("nan"))],
        *[("decimal(4,1)", value) for value in (1.5, Decimal("1.55"), Decimal("1000"), True, "1", Decimal("NaN"))],
        *[("double", value) for value in (True, Decimal("1.5"), "1", 2**53 + 1)],
        *[("timestamp", value) for value in (1767225600, 1.5, date(2026, 1, 1), "2026-01-01")],
        ("timestamp", pd.Timestamp(1, unit="ns")),
        *[("date", value) for value in (NOON, 20454, "2026-01-01")],
        *[("string", value) for value in (7, b"x", NOON, "\ud800")],
        *[("boolean", value) for value in (1, 0.0, "true")],
        *[("binary", value) for value in ("x", 7)],
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused(type_: str, value: Any) -> None:
    for values in ([value], [None, value]):
        with pytest.raises(BadRecord if len(values) == 1 else Exception):
            arrow_array(values, Field("x", type_))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        *[("int", value) for value in (2, -(2**31), np.int64(3))],
        *[("decimal(4,1)", value) for value in (1, Decimal("1.5"), Decimal("-999.9"), Decimal(2))],
        *[("double", value) for value in (1, 0.1, np.float64(0.5), np.float32(0.5), float("inf"))],
        ("timestamp", NOON),
        ("date", date(1, 1, 1)),
        *[("boolean", value) for value in (True, False, np.True_)],
        ("string", "Ü\0"),
        ("binary", b"\xff"),
    ],
    ids=str,
)
def test_a_value_of_its_type_is_kept_and_null_is_null(type_: str, value: Any) -> None:
    assert arrow_array([value, None], Field("x", type_)).to_pylist() == [value, None]


def test_it_is_said_which_value_is_meant_for_what() -> None:
    with refused("TX308", "function", "2.7", "'x'"):
        arrow_array([1, 2.7], Field("x", "int"))
    with refused("TX308", "function", "'1.55'", "'x'"):
        arrow_array([Decimal("1.55")], Field("x", "decimal(4,1)"))
    with refused("TX301", "1099511627776", "'x'"):
        arrow_array([1, 2**40, 2], Field("x", "int"), "the state has")
