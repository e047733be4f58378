"""Sessions close: a topology gets each of them once, as of its closing, whatever comes later, from both ledgers (R26, R27)."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from contract.test_closings import Finals
from contract.test_keep_windows import rebuilds as rebuild_of
from contract.test_restate import restate_of
from contract.test_watermarks import Visits, at
from refusals import refused

from txbatch import session_window
from txbatch.core.batch.transaction import Batch
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.state.keep import Keep
from txbatch.core.upstream.closed_sessions import Asked, Before, SessionVersion, first_closed
from txbatch.core.windows.watermark import BEGIN

pytestmark = [pytest.mark.rule("R26"), pytest.mark.rule("R27")]
GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "closed_sessions").glob("*.json"))
FIELDS = "session_start timestamp, session_end timestamp, visits bigint, closed_by bigint"


def sessions(backing: Any, late: str = "merge") -> Visits:
    """Visits ten minutes behind at most, in sessions that are half an hour apart."""
    return Visits(backing, late=late, by=session_window("at", "30 minutes"))


def of_day(time: Any) -> int:
    return (micros_of(time) - micros_of(at(0))) // 60_000_000


def shown(rows: list[tuple[Any, ...]]) -> list[list[int]]:
    """Start and end in minutes of the day, visits, and the txid that closed them."""
    return sorted([of_day(start), of_day(end), visits, by] for start, end, visits, by in rows)


def closes(visits: Visits, txid: int) -> list[int | None] | None:
    """From which last time on, in minutes of the day, a batch closed sessions, and before which; None: from ever, or none."""
    _, closed = visits.backing.closings("visits", txid)
    if closed is None:
        return None
    key, first, end = closed["visits"]
    assert key == "session_end"
    return [None if each == BEGIN else (each - micros_of(at(0))) // 60_000_000 for each in (first, end)]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(backing: Any, path: Path) -> None:
    """A step is a batch, or a restate of a position: minutes of a day; which last times it closes, and what a reader gets then.

    A reader that comes at the end gets all of it at once.
    """
    case = json.loads(path.read_text(encoding="utf-8"))
    visits, handed_on = sessions(backing, case["late"]), []
    finals = Finals(visits, fields=FIELDS)
    for number, step in enumerate(case["steps"], 1):
        visits.counts(restate_of(step["restate"]) if "restate" in step else str(number), a=step["batch"])
        assert closes(visits, number) == step["closes"], step
        batch = finals.plans(f"plan {number}")
        if step["handed_on"] is None:
            assert isinstance(batch, NothingNew), step
            continue
        assert isinstance(batch, Batch), step
        assert shown(finals.reads(f"plan {number}")) == step["handed_on"], step
        handed_on += step["handed_on"]
    assert shown(Finals(visits, "late", FIELDS).reads("all")) == sorted(handed_on)


@pytest.mark.parametrize("late", ["merge", "drop"])
def test_every_attempt_of_a_reader_has_the_same_sessions_whatever_comes_meanwhile(backing: Any, late: str) -> None:
    visits = sessions(backing, late)
    visits.counts("1", a=[0, 10, 100])
    finals = Finals(visits, fields=FIELDS)
    batch = finals.plans("a")
    assert shown(finals.exports(batch, "a")) == [[0, 10, 2, 1]]
    visits.counts("2", a=[30, 60, 200])
    again = visits.planned(restate_of(1), "a")
    visits.commit(again, visits.emit(again, {"a": [5, 90]}, "again"))
    assert shown(finals.exports(batch, "a")) == [[0, 10, 2, 1]]


@pytest.mark.rule("R22")
def test_what_was_closed_before_the_horizon_comes_as_of_that(backing: Any) -> None:
    """Also to who reads on from there: what had been closed as of the horizon is not handed on again."""
    visits = sessions(backing)
    visits.counts("1", a=[0, 100])
    visits.counts("2", a=[20, 200])
    assert {each.horizon for each in backing.retention.fold("visits", 2)} == {2}
    visits.counts("3", a=[40, 70, 130, 160, 210])
    finals = Finals(visits, fields=FIELDS)
    assert shown(finals.reads("a")) == [[0, 20, 2, 1], [100, 100, 1, 2]]
    visits.counts("4", a=[400])
    assert shown(finals.reads("b")) == [[200, 210, 2, 4]]
    visits.counts("5", a=[600])
    assert shown(finals.reads("c")) == [[400, 400, 1, 5]]


@pytest.mark.rule("R22")
def test_what_is_folded_while_a_session_is_open_again_does_not_hand_it_on_again(backing: Any) -> None:
    """Retention leaves what says that it was closed, until the reader has it behind itself."""
    visits = sessions(backing)
    finals = Finals(visits, fields=FIELDS)
    visits.counts("1", a=[0, 100])
    assert shown(finals.reads("a")) == [[0, 0, 1, 1]]
    visits.counts("2", a=[0, 25, 50, 75])
    visits.counts("3", a=[110])
    assert shown(finals.reads("b")) == []
    assert backing.retention.past("visits", Keep(txids=1)).reached == 1
    visits.counts("4", a=[300])
    assert shown(finals.reads("c")) == []
    assert backing.retention.past("visits", Keep(txids=1)).reached == 3


@pytest.mark.rule("R22")
def test_what_is_folded_of_an_open_session_that_was_restated_hands_it_on(backing: Any) -> None:
    visits = sessions(backing)
    finals = Finals(visits, fields=FIELDS)
    visits.counts("1", a=[0, 100])
    visits.counts("2", a=[125])
    visits.counts("3", a=[150])
    visits.counts(restate_of(2), a=[125])
    visits.counts("5", a=[152])
    assert shown(finals.reads("a")) == [[0, 0, 1, 1]]
    assert backing.retention.past("visits", Keep(txids=1)).reached == 4
    assert {each.horizon for each in backing.retention.fold("visits", 4)} == {4}
    visits.counts("6", a=[400])
    assert shown(finals.reads("b")) == [[100, 152, 4, 6]]


@pytest.mark.parametrize("late", ["merge", "drop"])
def test_any_batches_hand_on_what_the_rule_says(backing: Any, late: str) -> None:
    """Of sessions that a commit finds closed, those that end in what it closed, and in which nothing was closed before."""
    random = Random(26)
    visits, was, ever, expected, now = sessions(backing, late), None, set[tuple[int, int]](), [], 0
    for txid in range(1, 13):
        now += random.randrange(100)
        times = [now - random.randrange(20) - random.choice([0, 0, 60]) for _ in range(random.randint(1, 4))]
        mark, _ = visits.counts(f"{txid}", a=[each + 200 for each in times])
        rows = backing.report(visits.topology, "visits")
        there = [(of_day(row["session_start"]), of_day(row["session_end"]), row["visits"]) for row in rows]
        closed = [each for each in there if each[1] + 30 < mark]
        expected += [
            [*each, txid]
            for each in closed
            if (was is None or each[1] + 30 >= was)
            and not any(start <= each[1] and each[0] <= end for start, end in ever)
        ]
        ever |= {(start, end) for start, end, _ in closed}
        was = mark
    assert len(expected) > 3
    assert shown(Finals(visits, fields=FIELDS).reads("a")) == sorted(expected)


def test_other_sessions_of_the_key_cost_next_to_nothing() -> None:
    """A user with very many: what was closed is asked of the changes of the one session alone."""
    others = [SessionVersion(100 * each, 100 * each + 5, txid=each) for each in range(1, 1_000)]
    asked = list[int]()

    class Noted(Asked):
        def closed(self, session: Any, versions: Any, at: int, swapped: int = 0) -> bool:
            asked.append(at)
            return super().closed(session, versions, at, swapped)

    of = [*others, SessionVersion(50_010, 50_015, txid=700), SessionVersion(50_020, 50_025, txid=900)]
    assert first_closed((50_000, 50_025), of, 999, Noted(10, [(at, 100 * at) for at in range(1, 1_000)])) == 699
    assert asked == [499, 699]


@pytest.mark.rule("R17")
def test_what_a_restate_begins_later_is_not_handed_on_again(backing: Any) -> None:
    """Records of the session were handed on, though not the first one."""
    visits = sessions(backing)
    finals = Finals(visits, fields=FIELDS)
    visits.counts("1", a=[0, 1, 2, 3, 4])
    visits.counts("2", a=[100, 101])
    assert shown(finals.reads("a")) == [[0, 4, 5, 2]]
    visits.counts(restate_of(1), a=[3, 25, 50, 75, 95])
    visits.counts("4", a=[300])
    visits.counts("5", a=[600])
    assert shown(finals.reads("b")) == [[300, 300, 1, 5]]


# ---- over rebuilds


class TwoShops(Visits):
    """Visits of a second shop are those of the minutes from 10,000 on."""

    def record(self, minute: int) -> dict[str, Any]:
        return {"at": at(minute % 10_000), "shop": "y" if minute >= 10_000 else "x"}


def rebuilt(visits: Visits, minutes: dict[int, list[int]]) -> None:
    """Count these of each batch, and swap."""
    rebuild = rebuild_of(visits, minutes)
    assert isinstance(visits.backing.rebuilds.swap(rebuild, visits.topology), Swapped)


def two_shops(backing: Any) -> tuple[Visits, Finals]:
    """The first session of x was closed and handed on; a rebuild has made it longer, so that it is open as of txid 2."""
    visits = TwoShops(backing, late="merge", by=session_window("at", "30 minutes"))
    finals = Finals(visits, fields=FIELDS)
    visits.counts("1", a=[0, 1, 2, 3, 4])
    visits.counts("2", a=[100, 101])
    assert shown(finals.reads("a")) == [[0, 4, 5, 2]]
    rebuilt(visits, {1: [0, 25, 50, 75, 95], 2: [100, 101]})
    return visits, finals


@pytest.mark.rule("R23")
def test_what_was_handed_on_before_a_rebuild_is_not_handed_on_again(backing: Any) -> None:
    visits, finals = two_shops(backing)
    visits.counts("3", a=[300])
    visits.counts("4", a=[600])
    assert shown(finals.reads("b")) == [[300, 300, 1, 4]]
    assert shown(finals.reads("again", restate_of(2).restate)) == [[300, 300, 1, 4]]
    assert shown(Finals(visits, "late", FIELDS).reads("all")) == [[0, 4, 5, 2], [300, 300, 1, 4]]


@pytest.mark.rule("R22", "R23")
def test_it_is_known_for_as_long_as_the_session_is_open(backing: Any) -> None:
    """By what the rebuild replaced, which stays so long."""
    visits, finals = two_shops(backing)
    visits.counts("3", a=[10_110, 130])
    visits.counts("4", a=[155])
    assert shown(finals.reads("b")) == [[110, 110, 1, 4]]
    with refused("TX606", "'finals'", "'visits'", "rebuild"):
        backing.rebuilds.drop_past("visits")
    visits.counts("5", a=[400])
    assert {each.horizon for each in backing.retention.fold("visits", 4)} == {3}
    assert shown(finals.reads("c")) == []
    assert len(backing.rebuilds.drop_past("visits")) == 1
    visits.counts("6", a=[600])
    assert shown(finals.reads("d")) == [[400, 400, 1, 6]]


@pytest.mark.rule("R23")
def test_what_another_rebuild_begins_earlier_or_ends_earlier_is_the_same_session(backing: Any) -> None:
    visits, finals = two_shops(backing)
    visits.counts("3", a=[110])
    rebuilt(visits, {1: [3, 25, 50, 75, 95], 2: [100, 101], 3: [110]})
    visits.counts("4", a=[300])
    assert shown(finals.reads("b")) == []
    visits.counts("5", a=[600])
    assert shown(finals.reads("c")) == [[300, 300, 1, 5]]


@pytest.mark.rule("R23")
def test_what_was_closed_only_as_the_rebuild_counts_it_is_handed_on_once_it_closes(backing: Any) -> None:
    """Reports never showed it so: as of then they showed a session that was open."""
    visits = sessions(backing)
    finals = Finals(visits, fields=FIELDS)
    visits.counts("1", a=[0])
    visits.counts("2", a=[25])
    visits.counts("3", a=[50])
    rebuilt(visits, {1: [0], 2: [], 3: [50]})
    visits.counts("4", a=[25])
    visits.counts("5", a=[300])
    assert shown(finals.reads("a")) == [[0, 50, 3, 5]]


@pytest.mark.rule("R23")
def test_a_range_of_the_version_before_hands_on_what_it_did(backing: Any) -> None:
    """Its plan does not say that what was closed is asked over swaps: all attempts of a batch find the same."""
    visits, finals = two_shops(backing)
    visits.counts("3", a=[300])
    (range_,) = finals.plans("b").plan.streams["closed"].ranges.values()
    assert range_["touching"]
    older = {name: value for name, value in range_.items() if name != "touching"}
    upstream, columns = visits.ledger.upstream, [field.partition(" ")[0] for field in FIELDS.split(", ")]
    assert shown(list(upstream.closed("visits", older, columns))) == [[0, 101, 7, 3]]
    assert shown(list(upstream.closed("visits", range_, columns))) == []


def test_before_a_rebuild_any_of_a_session_that_was_closed_counts() -> None:
    """As of the last cut of what was replaced, too, when nothing had changed since."""
    before = Before([SessionVersion(0, 4, txid=1)], last=2)
    now = [SessionVersion(3, 95, txid=1), SessionVersion(100, 101, txid=2)]
    closings = [(1, -6), (2, 91), (3, 200)]
    found = [first_closed((3, 101), now, 3, Asked(30, closings, since), (before,)) for since in (0, 2, 3)]
    assert found == [2, 2, None]
    assert first_closed((100, 101), now, 3, Asked(30, closings), (before,)) is None


@pytest.mark.rule("R26")
def test_of_an_aborted_txid_after_a_swap_nothing_was_closed() -> None:
    """A rebuild after txid 1 brought a session into closed times. Reports showed the session as of txid 2 where that counted."""
    before, now = Before([], last=1), [SessionVersion(3, 4, txid=1), SessionVersion(30, 31, txid=3)]
    aborted, counted = [(1, 50), (3, 90)], [(1, 50), (2, 50), (3, 90)]
    assert [first_closed((3, 31), now, 3, Asked(30, of), (before,)) for of in (aborted, counted)] == [None, 2]
