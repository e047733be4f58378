from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from txbatch.core.batch.manifest import Manifest, ReadPartition, StagedFile, StagedState
from txbatch.core.batch.transaction import Assignment, BatchStatus, Interval, Run, TransactionAttempt
from txbatch.core.errors import DefinitionError
from txbatch.core.stored_json import STORED_BYTES_MAX, canonical_json, digest

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=10,
)


def test_an_attempt_prints_as_txid_and_attempt_id() -> None:
    assert str(TransactionAttempt(7, 2)) == "7:2"
    assert sorted([TransactionAttempt(10, 1), TransactionAttempt(9, 12), TransactionAttempt(9, 2)])[
        0
    ] == TransactionAttempt(9, 2)


@given(values)
def test_json_comes_back_and_keeps_its_digest(value: Any) -> None:
    back = json.loads(canonical_json(value))
    assert back == value
    assert digest(back) == digest(value)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers()))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    assert digest(dict(reversed(value.items()))) == digest(value)


def test_a_digest_is_of_the_content() -> None:
    assert len({digest(each) for each in ({}, [], 0, 1, "1", None, True, {"a": 1}, {"a": "1"}, {"a": [1]})}) == 10


@pytest.mark.parametrize(
    "value",
    [
        {"a": object()}, {"a": float("nan")}, {"a": float("inf")}, {"a": b"bytes"}, {"a": {1, 2}}, {"a": datetime.now(UTC)},
        {1: "a", "1": "b"}, {("a",): 1}, {"file": "\udcff"},
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(value: Any) -> None:
    with refused("TX119", "JSON"):
        canonical_json(value)


def test_metadata_has_a_limit() -> None:
    assert canonical_json("x" * 999_998)
    with refused("TX119", "1,000,001", "1,000,000"):
        canonical_json("x" * 999_999)
    with pytest.raises(DefinitionError, match="plan smaller batches"):
        canonical_json("日" * 400_000)


def test_what_the_ledger_is_told_has_a_limit_of_its_own() -> None:
    """A manifest says more of a partition than its plan: whatever was planned can be told."""
    names = [f"{number:014}" for number in range(28_000)]
    plan = {"partitions": {name: {"start": 0, "end": 5} for name in names}}
    read = {"in": {name: ReadPartition(123_456, "-" + "9" * 38) for name in names}}
    manifest = replace(MANIFEST, streams=read)
    assert len(canonical_json(plan, 2_000_000)) * 10 > len(canonical_json(manifest.to_json(), STORED_BYTES_MAX))
    assert digest(plan)


def test_an_interval_is_in_utc_and_has_a_length() -> None:
    east = timezone(timedelta(hours=2))
    day = Interval(datetime(2024, 3, 1, 2, tzinfo=east), datetime(2024, 3, 2, 2, tzinfo=east))
    assert str(day) == "2024-03-01T00:00:00+00:00/2024-03-02T00:00:00+00:00"
    assert day == Interval(datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 3, 2, tzinfo=UTC))
    for start, end, told in (
        (day.start, day.start, "give start before end"),
        (day.end, day.start, "give start before end"),
        (datetime(2024, 3, 1), day.end, "give both with a zone"),  # noqa: DTZ001
    ):
        with pytest.raises(DefinitionError, match=f"is not one: {told}$"):
            Interval(start, end)


def test_texts_are_no_interval() -> None:
    with refused("TX118", "zone"):
        Interval("2024-03-01", "2024-03-02")  # type: ignore[arg-type]


def test_a_run_is_found_by_its_name_or_its_interval() -> None:
    day = Interval(datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 3, 2, tzinfo=UTC))
    assert Run("dag/run").key == "run:dag/run"
    assert Run("dag/run", interval=day).key == Run("other", interval=day).key == f"interval:{day}"


def test_a_status_is_final_or_not() -> None:
    assert [status.final for status in BatchStatus] == [False, False, True, True]


ASSIGNMENT = Assignment("t", TransactionAttempt(2**53 + 1, 3), "token", {"streams": {"ü": {"end": 1}}}, "code")
MANIFEST = Manifest(
    topology="t",
    attempt=TransactionAttempt(7, 2),
    token="token",
    code="code",
    metadata_digest="digest",
    streams={"s": {"a": ReadPartition(3, "99999999999999999999999999999999999999"), "": ReadPartition(0, "0")}},
    states={"ü": StagedState((StagedFile("partials/0/a.parquet", 10, 3, "sha"),), 3, {"count": "3", "low": None})},
    unreadable={"s": {"b": "broker down"}},
)


def test_an_assignment_travels_as_json() -> None:
    assert Assignment.from_json(json.loads(json.dumps(ASSIGNMENT.to_json()))) == ASSIGNMENT
    assert ASSIGNMENT.to_json()["metadata_digest"] == digest(ASSIGNMENT.metadata)


def test_a_manifest_travels_as_json() -> None:
    assert Manifest.from_json(json.loads(canonical_json(MANIFEST.to_json()))) == MANIFEST
    assert MANIFEST.records == 3
