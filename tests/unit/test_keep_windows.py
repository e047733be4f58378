"""Keeping windows: what is refused where it is defined, which may leave, and how it is told (R30)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from refusals import refused

from txbatch import Avg, Count, FixedBatchSpout, Keep, OpaqueState, Stream, Sum, Topology, session_window, window
from txbatch.core.corrections.window_retention import Leaving, WindowFacts, decided
from txbatch.core.definition.keep_policy import describe_policy, kept_windows
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.topology.kept_windows import KeptWindows, Left, describe_time
from txbatch.run import window_retention

pytestmark = pytest.mark.rule("R30")
AT = datetime(2026, 1, 5, 10, 20, tzinfo=UTC)
MINUTE = 60_000_000
TIME = micros_of(AT)


def visits(topology: Topology | None = None) -> Stream:
    spout = FixedBatchSpout("at timestamp, shop string, price bigint", 1, (AT, "x", 1))
    return (topology or Topology("visits", keep=Keep(days=90))).new_stream("visits", spout)


def kept(stream: Stream, by: Any = None, keep: str = "90 days", **state: Any) -> Any:
    grouped = stream.group_by(by or window("at", "1 hour"))
    return grouped.persistent_aggregate(OpaqueState("hourly", keep_windows=keep, **state), visits=Count())


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        ("90", ("TX108", "'hourly'", "keep_windows", "'90'")),
        ("0 days", ("TX108", "'hourly'", "keep_windows", "'0 days'", "1")),
        ("3 months", ("TX108", "keep_windows", "'3 months'")),
        (90, ("TX108", "keep_windows", "90")),
    ],
)
def test_a_length_that_is_none_is_refused(keep: Any, says: tuple[str, ...]) -> None:
    with refused(*says):
        OpaqueState("hourly", keep_windows=keep)


def test_it_is_of_windows() -> None:
    with refused("TX707", "'hourly'", "keep_windows='90 days'"):
        kept(visits().with_watermark("at", "1 hour", late="drop"), by="shop")


def test_windows_that_never_close_never_leave() -> None:
    with refused("TX707", "window", "with_watermark"):
        kept(visits())


def test_late_records_that_count_would_begin_one_anew() -> None:
    with refused("TX707", "window", "late='merge'"):
        kept(visits().with_watermark("at", "1 hour"))
    for late in ("drop", "side"):
        kept(visits().with_watermark("at", "1 hour", late=late))
    kept(visits().with_processing_time("now"), by=window("now", "1 minute"))


@pytest.mark.parametrize("state", [{"contributions": False}, {"database": "warehouse"}])
def test_without_contributions_nobody_knows_what_is_folded(state: dict[str, Any]) -> None:
    with refused("TX707", "'hourly'", "contributions"):
        kept(visits().with_watermark("at", "1 hour", late="drop"), **state)


def test_a_topology_that_folds_nothing_keeps_all_windows() -> None:
    topology = Topology("visits")
    kept(visits(topology).with_watermark("at", "1 hour", late="drop"))
    with refused("TX707", "'visits'", "keep=", "days=", "90"):
        topology.check()
    topology.keep = Keep(days=90)
    assert topology.check() is topology


def test_what_the_ledger_is_told_of_it() -> None:
    topology = Topology("visits", keep=Keep(days=90))
    stream = visits(topology).with_watermark("at", "1 hour", late="drop")
    kept(stream, by=window("at", "1 hour"))
    grouped = stream.group_by("shop", session_window("at", "30 minutes"))
    state = OpaqueState("stays", keep_windows="36 hours")
    grouped.persistent_aggregate(state, of_one=Count(where="price = 1"), mean=Avg("price"), total=Sum("price"))
    found = kept_windows(topology)
    assert {name: (str(each), each.by, each.gap, each.records, dict(each.streams)) for name, each in found.items()} == {
        "hourly": ("90 days", "window_start", None, "visits", {"visits": False}),
        "stays": ("36 hours", "session_end", 30 * MINUTE, None, {"visits": False}),
    }
    assert describe_policy(topology.keep, found) == (
        "the last 90 days; windows of state 'hourly' for 90 days; windows of state 'stays' for 36 hours"
    )


HOURS = KeptWindows(60 * MINUTE, window("at", "1 hour"), {"visits": False}, "visits")
HORIZON = "the batches behind txid 4 to be folded, from which on they may still be counted again"


def leaving(**changes: Any) -> Leaving:
    of: dict[str, Any] = {"horizon": 4, "closed_then": TIME, "closed_now": TIME + 60 * MINUTE, "marks": [TIME]}
    return decided("hourly", HOURS, changes.pop("left", None), WindowFacts(**(of | changes)))


@pytest.mark.parametrize(
    ("changes", "hour", "waits_for"),
    [
        ({}, 10, None),
        ({"closed_then": TIME - 30 * MINUTE}, 9, HORIZON),
        ({"marks": [TIME, TIME - 90 * MINUTE]}, 8, HORIZON),
        ({"marks": [TIME, None]}, None, HORIZON),
        ({"closed_then": None}, None, HORIZON),
        ({"closed_now": TIME}, 9, None),
        ({"closed_now": None, "closed_then": None}, None, None),
        ({"rebuild": 3}, None, "rebuild 3 to be swapped or cancelled"),
        ({"readers": [("low", 7)]}, None, "topology 'low', whose open txid 7 reads all of the state"),
        ({"readers": [("low", None)]}, None, "topology 'low', which has not read the state since a rebuild, to run"),
        ({"rebuild": 3, "left": Left(HOURS, TIME, 3)}, None, None),
    ],
)
def test_which_may_leave_and_what_others_wait_for(
    changes: dict[str, Any], hour: int | None, waits_for: str | None
) -> None:
    found = leaving(**changes)
    before = None if hour is None else micros_of(AT.replace(hour=hour, minute=0))
    assert (found.before, found.waits_for, found.some) == (before, waits_for, hour is not None)


def test_what_has_left_is_not_let_go_again() -> None:
    before = micros_of(AT.replace(minute=0))
    assert not leaving(left=Left(HOURS, before, 4)).some
    assert leaving(left=Left(HOURS, before - 1, 4)).some


def test_how_it_is_told() -> None:
    row = {"state": "hourly", "keep": "1 hour", "which": "that begin before noon", "windows": 3, "records": None}
    assert window_retention.describe_windows({**row, "waits_for": HORIZON}) == (
        f"state 'hourly': its windows that begin before noon have left, 3 of them now; what is older than that waits for "
        f"{HORIZON}"
    )
    assert window_retention.describe_windows({**row, "waits_for": None, "dry_run": True}) == (
        "state 'hourly': its windows that begin before noon would leave, that is 3"
    )
    assert window_retention.describe_windows({**row, "which": None, "waits_for": None}) == (
        "state 'hourly': its windows stay for 1 hour once they have ended, and none has left"
    )
    assert (describe_time(TIME), describe_time(TIME + 1_000_000)) == ("2026-01-05 10:20 UTC", "2026-01-05 10:20:01 UTC")
    assert describe_time(10**18) == "1000000000000000000 microseconds since 1970"
