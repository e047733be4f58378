"""The contract of a spout: what txbatch relies on, as tests that pytest runs for a subclass of `SpoutContract`."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import SkipTest

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Interval, Metadata
from txbatch.core.errors import TxbatchError
from txbatch.core.sources.spout import PartitionedSpout, Spout, SpoutKind
from txbatch.core.stored_json import is_range
from txbatch.testing.spout_reading import Read, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A partition's name, an interval, or None for a source without both.
Place = str | Interval | None
RECORDS, PLANS_MAX = 5, 100


class SpoutContract(ABC):
    """Subclass with a name that begins with `Test`, and say how your source is made and changed: pytest runs the tests.

    `names` are partitions of the source, odd names among them; `intervals` are intervals of a source by time, one after the
    other. `secret` is a text that only the spout may know. The tests take the fixtures `tmp_path`, a folder for the source of
    one test, and `spark`, a session of Spark, which you define. A test whose change your source does not know is skipped.
    """

    names: Sequence[str] = ()
    intervals: Sequence[Interval] = ()
    secret: str | None = None

    @abstractmethod
    def make(self, folder: Path) -> Spout:
        """Return a new spout that reads the source of a test."""

    @abstractmethod
    def append(self, folder: Path, place: Any, number: int) -> None:
        """Add so many records to a partition or an interval of the source: no record is like another of the source."""

    def take_away(self, folder: Path) -> None:
        """Begin an outage: the source, or a part of the source, cannot be read."""
        _unknown()

    def give_back(self, folder: Path) -> None:
        """End the outage."""
        _unknown()

    def cut_off(self, folder: Path) -> None:
        """Remove the newest records of each place."""
        _unknown()

    def make_anew(self, folder: Path) -> None:
        """Put another source in the place of the source, with fewer records than were read."""
        _unknown()

    def test_a_plan_is_json_and_two_looks_agree(self, tmp_path: Path) -> None:
        """What a plan says depends on the source and on the plan before, and on nothing else."""
        self._fill(tmp_path)
        plan, again = self._first(tmp_path), self._first(tmp_path)
        _expect(plan == again, f"two looks from one place planned {plan} and {again}")
        _expect(json.loads(json.dumps(plan)) == plan, f"JSON makes another plan of {plan}")

    def test_a_plan_goes_on_where_the_last_one_ended(self, tmp_path: Path) -> None:
        """Offsets go on, by one look and by several, until nothing is new; what comes then follows."""
        self._fill(tmp_path)
        plans = self._plans(tmp_path)
        _expect(bool(plans), "there are records, and nothing is planned")
        with Coordinated(self._source(tmp_path)) as source:
            _expect(
                list(source.plans(self.intervals)) == plans, "the plans of one look differ from the plans of many looks"
            )
        if self.intervals:
            return
        _expect(self._source(tmp_path).plan(plans) is None, "nothing is new, and something is planned")
        self._fill(tmp_path)
        further = self._plans(tmp_path, plans)
        _expect(bool(further), "new records came, and nothing is planned")

    def test_each_record_comes_once_and_by_the_same_plan_again(self, tmp_path: Path, spark: SparkSession) -> None:
        """Also by another process, after more has come."""
        self._fill(tmp_path)
        plans = self._plans(tmp_path)
        found = [self._read(tmp_path, spark, plan) for plan in plans]
        records = [record for each in found for record in each.records]
        _expect(len({*records}) == len(records), f"records come twice: {sorted(records)}")
        _expect(len(records) == self._number, f"{self._number} records are there, {len(records)} came")
        _expect([each.number for each in found] == [len(each.records) for each in found], "audit and records disagree")
        self._fill(tmp_path)
        _expect(self._read(tmp_path, spark, _stored(plans[0])) == found[0], "the same plan gives other records")
        if not self.intervals:
            new = self._read(tmp_path, spark, self._next(tmp_path, plans))
            _expect(not {*new.records} & {*records}, "the next plan gives records that came before")

    def test_batches_read_together_are_those_alone(self, tmp_path: Path, spark: SparkSession) -> None:
        """In one pass each batch has the records that the batch has alone."""
        self._fill(tmp_path)
        plans = self._plans(tmp_path)
        if not self.intervals:
            self._fill(tmp_path)
            plans += self._plans(tmp_path, plans)
        together = self._source(tmp_path).read_together(spark, plans)
        if together is None:
            raise SkipTest("the batches do not go together")
        for plan, found in zip(plans, together, strict=True):
            alone = self._read(tmp_path, spark, plan)
            _expect(found == alone, f"together a batch has {found}, alone {alone}")

    def test_an_outage_loses_nothing(self, tmp_path: Path, spark: SparkSession) -> None:
        """While a part is away it is refused, or left out by an opaque spout; once it is back, the plan gives all."""
        self._fill(tmp_path)
        plan, spout = self._first(tmp_path), self.make(tmp_path)
        found = self._read(tmp_path, spark, plan)
        self.take_away(tmp_path)
        with suppress(TxbatchError):
            self._first(tmp_path)
        away = self._tried(tmp_path, spark, plan)
        opaque = spout.kind is SpoutKind.OPAQUE
        left_out = opaque and away is not None and {*away.records} <= {*found.records}
        _expect(away in (None, found) or left_out, f"an outage gives {away}")
        self.give_back(tmp_path)
        _expect(self._read(tmp_path, spark, plan) == found, "the outage changed what the plan gives")

    def test_a_source_that_is_cut_off_gives_a_range_whole_or_not_at_all(
        self, tmp_path: Path, spark: SparkSession
    ) -> None:
        """Fewer records never pass for a range."""
        self._changed(tmp_path, spark, self.cut_off)

    def test_a_source_that_was_made_anew_is_refused(self, tmp_path: Path, spark: SparkSession) -> None:
        """The records of another source never pass for the planned ones."""
        self._changed(tmp_path, spark, self.make_anew)

    def test_a_batch_is_counted_again_or_refused(self, tmp_path: Path) -> None:
        """`plan_again` returns JSON, or says why not, whatever happened to the source."""
        for change in (self._fill, self.take_away, self.give_back, self.cut_off, self.make_anew):
            with suppress(SkipTest):
                if change == self._fill:
                    self._fill(tmp_path)
                    plans = self._plans(tmp_path)
                change(tmp_path)
                for plan in plans:
                    self._again(tmp_path, plan)

    def test_nothing_stays_open(self, tmp_path: Path, spark: SparkSession) -> None:
        """Coordinators and emitters close what they have opened."""
        self._fill(tmp_path)
        plan = self._first(tmp_path)
        self._read(tmp_path, spark, plan)
        before = _open()
        for _ in range(3):
            self._first(tmp_path)
            self._read(tmp_path, spark, plan)
        _expect(_open() <= before, f"{_open() - before} files or connections stay open")

    def test_a_secret_is_told_nowhere(self, tmp_path: Path) -> None:
        """Not in the identity, nor in plans, nor in errors."""
        if self.secret is None:
            raise SkipTest("the source has no secret")
        self._fill(tmp_path)
        told = [
            json.dumps(dict(self.make(tmp_path).identity)),
            repr(self.make(tmp_path)),
            *map(json.dumps, self._plans(tmp_path)),
        ]
        with suppress(SkipTest):
            self.take_away(tmp_path)
            try:
                told.append(json.dumps(self._source(tmp_path).plan(interval=self._interval)))
            except TxbatchError as error:
                told.append(f"{error!r} {error.__cause__!r} {error.__context__!r}")
        _expect(not any(self.secret in text for text in told), "the secret is told")

    # What the tests are made of.

    _number = 0

    @property
    def _places(self) -> Sequence[Place]:
        return self.names or self.intervals or (None,)

    @property
    def _interval(self) -> Interval | None:
        return self.intervals[0] if self.intervals else None

    def _fill(self, folder: Path) -> None:
        for number, place in enumerate(self._places, RECORDS):
            self.append(folder, place, number)
            self._number += number

    def _source(self, folder: Path) -> Source:
        return Source(self.make(folder))

    def _first(self, folder: Path) -> Metadata:
        return self._next(folder, [])

    def _next(self, folder: Path, before: Sequence[Metadata]) -> Metadata:
        plan = self._source(folder).plan(before, self._interval)
        if plan is None:
            raise AssertionError("there are records, and nothing is planned")
        return plan

    def _plans(self, folder: Path, before: Sequence[Metadata] = ()) -> list[Metadata]:
        """Return the plans of all that is there, each by a spout of its own."""
        found = list(before)
        for interval in _asked(self.intervals):
            plan = self._source(folder).plan(found, interval)
            if plan is None:
                break
            found.append(plan)
        return found[len(before) :]

    def _read(self, folder: Path, spark: SparkSession, plan: Metadata) -> Read:
        return self._source(folder).read(spark, plan)

    def _tried(self, folder: Path, spark: SparkSession, plan: Metadata) -> Read | None:
        """Return the records of a plan; None if the spout refuses the plan."""
        try:
            return self._read(folder, spark, plan)
        except Exception:
            return None

    def _changed(self, folder: Path, spark: SparkSession, change: Callable[[Path], None]) -> None:
        self._fill(folder)
        plans = self._plans(folder)
        found = [self._read(folder, spark, plan) for plan in plans]
        change(folder)
        for plan, before in zip(plans, found, strict=True):
            now = self._tried(folder, spark, plan)
            _expect(now in (None, before), f"the plan gave {before}, and gives {now} now")
        if not self.intervals:
            with suppress(TxbatchError):
                _check_next(self._source(folder).plan(plans), plans)

    def _again(self, folder: Path, plan: Metadata) -> None:
        with closing(self.make(folder).coordinator()):
            spout = self.make(folder)
        for of in BatchPlan.from_json(plan).streams.values():
            for partition, range_ in of.ranges.items() if not spout.by_interval else ():
                try:
                    again = spout.plan_again(partition, range_)
                except TxbatchError:
                    continue
                _expect(json.loads(json.dumps(again)) == again, f"JSON makes another plan of {again}")
                _expect(is_range(again) or not isinstance(spout, PartitionedSpout), f"{again} is no range")


class Coordinated:
    """A source whose plans are made by one look."""

    def __init__(self, source: Source) -> None:
        # With the protocol, which imports all of a topology.
        from txbatch.core.protocol.spout_coordinators import Coordinators

        self.source, self.by = source, Coordinators()

    def __enter__(self) -> Coordinated:
        return self

    def __exit__(self, *_: object) -> None:
        self.by.__exit__()

    def plans(self, intervals: Sequence[Interval]) -> Iterator[Metadata]:
        """Yield all plans."""
        found: list[Metadata] = []
        for interval in _asked(intervals):
            plan = self.source.plan(found, interval, self.by)
            if plan is None:
                return
            found.append(plan)
            yield plan


def _expect(condition: bool, told: str) -> None:
    """Raise AssertionError, also where Python leaves out assert statements."""
    if not condition:
        raise AssertionError(told)


def _asked(intervals: Sequence[Interval]) -> Sequence[Interval | None]:
    """Return the intervals to plan; of a source without intervals, None for each plan that may come."""
    return intervals or [None] * PLANS_MAX


def _check_next(plan: Metadata | None, before: Sequence[Metadata]) -> None:
    """Refuse that a source which lost records goes on as if nothing had happened: the next ranges are empty, or gone.

    Partitions of other names may begin, if the plan says which are missing.
    """
    known = {name for each in before for of in BatchPlan.from_json(each).partitioned.values() for name in of.partitions}
    for of in BatchPlan.from_json(plan).partitioned.values() if plan else ():
        for name, range_ in of.partitions.items():
            new = name not in known and bool(of.missing)
            _expect(new or range_.gone is not None or range_.start == range_.end, f"{name!r} goes on at {range_}")


def _stored(plan: Metadata) -> Metadata:
    found: Metadata = json.loads(json.dumps(plan))
    return found


def _open() -> int:
    """Return how many files and connections this process has open; 0 where the system does not say."""
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return 0


def _unknown() -> NoReturn:
    raise SkipTest("the source has no such change")
