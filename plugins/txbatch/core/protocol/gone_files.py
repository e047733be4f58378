"""Old files gone before a restate by a look back: numbers prove that no counted record is lost (R17).

Retention takes old files, and each plan names all files. A file last changed before an interval began should have no record of
the interval. The proof is the number of records: the restate has read all counted records, and all late records met since. If
late records may be unknown, the number proves nothing.

>>> from dataclasses import replace
>>> counted, met = {"old": [9, 1, 7], "a": [5, 3, 7]}, {"a": [5, 3, 7], "late": [4, 5, 7]}
>>> recount = Recount(counted, met, met, [], before=20, now=20)
>>> gone(counted, met), recount.loss
(['old'], None)
>>> replace(recount, now=19).loss
'19 records came of 20 records and 0 late records'
>>> replace(recount, again={**met, "newer": [4, 9, 7]}).loss
'newer came or grew since'
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from txbatch.core.batch.came_late import Late
from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.planned_files import Entry, is_same, planned_size
from txbatch.core.batch.transaction import Batch, Interval
from txbatch.core.errors import CannotRestate
from txbatch.core.protocol.ledger import Ledger, PositionVersion
from txbatch.core.protocol.lookback import (
    FOUND_MAX,
    NEWEST,
    FoundLate,
    LookFacts,
    check_files,
    in_files,
    interval_of,
    is_by_look_back,
    lookbacks,
    plan_of,
    records_in,
)
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.text import how_many
from txbatch.core.topology.topology import Topology


def gone(counted: Mapping[str, Entry], again: Mapping[str, Entry]) -> list[str]:
    """Return the files of a counted plan missing in another plan."""
    return [name for name in counted if name not in again]


@dataclass(frozen=True, slots=True)
class Recount:
    """A stream of a restate before the commit: the files of the `counted` plan, of the plan `again`, and of the newest plan of a
    look, which `met` the late records; the late records `found` by batches; and the numbers of records `before` and `now`.
    """

    counted: Mapping[str, Entry]
    again: Mapping[str, Entry]
    met: Mapping[str, Entry]
    found: Sequence[FoundLate]
    before: int
    now: int

    @property
    def loss(self) -> str | None:
        """The reason to expect a loss of records; None if the numbers prove that no record is lost."""
        if unknown := [name for name, entry in self.again.items() if not self._is_known(name, entry)]:
            return f"{unknown[0]} came or grew since"
        late = self._late()
        if late is None:
            return "some of the late records may be counted"
        if self.before + late == self.now:
            return None
        of = f"{how_many(self.before, 'record')} and {how_many(late, 'late record')}"
        return f"{how_many(self.now, 'record')} came of {of}"

    def _is_known(self, name: str, entry: Entry) -> bool:
        return is_same(self.counted.get(name), entry) or is_same(self.met.get(name), entry)

    def _late(self) -> int | None:
        """Return the number of late records behind the counted parts of files; None if the parts overlap."""
        parts: dict[str, list[tuple[Late, int]]] = {}
        for each in self.found:
            for name, late in each.files.items():
                known = planned_size(self.counted[name]) if name in self.counted else 0
                to = planned_size(each.seen[name]) if name in each.seen else known + 1
                if known < to and late.since < known:
                    return None
                if known < to:
                    parts.setdefault(name, []).append((late, to))
        return sum(map(records_in, parts.values()))


def why_not(counted: Mapping[str, Entry], now: Mapping[str, Entry], met: Mapping[str, Entry]) -> str | None:
    """Return the reason to leave a position with old files gone; None if a restate may prove that no record is lost."""
    lacking = gone(counted, now)
    loss = Recount(counted, now, met, (), 0, 0).loss if lacking else None
    return None if loss is None else f"{lacking[0]} is gone since, and {loss}"


def check_look_back(
    ledger: Ledger, topology: Topology, batch: Batch, version: PositionVersion, manifest: Manifest
) -> Collection[str]:
    """Refuse a restate by a look back that may lose records: CannotRestate. Return the streams without a loss, though old files
    are gone; none for another batch.
    """
    if not is_by_look_back(batch):
        return ()
    check_files(topology, version.plan, batch.plan)
    return proven(ledger, topology, batch, version, manifest)


def proven(
    ledger: Ledger, topology: Topology, batch: Batch, version: PositionVersion, manifest: Manifest
) -> Collection[str]:
    """Return the streams of a restate by a look back whose old files are gone, though no record is lost.

    Raise CannotRestate if records may be lost.
    """
    found, interval = set[str](), interval_of(version.plan)
    for name in in_files(topology):
        counted, again = plan_of(version.plan, name), plan_of(batch.plan, name)
        if interval is None or not counted or not again or not gone(counted["files"], again["files"]):
            continue
        facts = ledger.look_facts(batch, interval.end)  # first: no late record in the files of the plan is missed
        late = ledger.found_late(batch.topology)
        mine = [each for each in late if each.stream == name and each.position == batch.position]
        met = plan_of(facts.before, name) if mine and facts.before else None
        numbers = _records(version.read.get(name, {})), _records(manifest.streams.get(name, {}))
        recount = Recount(counted["files"], again["files"], met["files"] if met else {}, mine, *numbers)
        if loss := recount.loss or _unknown(topology, version, interval, facts, late):
            first, *_ = gone(recount.counted, recount.again)
            raise CannotRestate(
                f"{topology.name}: stream {name!r}: {first} is gone since, and {loss}; late records alone are no reason to count "
                "without it"
            )
        found.add(name)
    return found


def _unknown(
    topology: Topology, version: PositionVersion, interval: Interval, facts: LookFacts, late: Sequence[FoundLate]
) -> str | None:
    """Return why the ledger may not know all late records of a position's interval; None if the ledger knows all.

    The ledger tells the newest finds alone. A batch looks for records of the newest intervals, and of intervals within its
    lookback: a batch since the counting version may have read a new file without a look for records of this position.
    """
    since, end = version.current.txid, micros_of(interval.end)
    if len(late) >= FOUND_MAX and late[-1].found_by > since:
        return f"older late records than the newest {FOUND_MAX:,} finds are unknown"
    longest = max(lookbacks(topology).values(), default=0)
    later = sorted((txid, start) for txid, start, _ in facts.intervals if start >= end)
    for newer, (txid, start) in enumerate(later):
        if newer >= NEWEST and txid > since and start - longest >= end:
            return f"txid {txid} read new files without a look for late records of {interval}"
    return None


def _records(read: Mapping[str, ReadPartition | None]) -> int:
    return sum(each.records for each in read.values() if each)
