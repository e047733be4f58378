"""Verify a topology: read its committed batches again, and compare the results with the rows in the ledger's database (R24).

Verify uses no txid, makes no attempt and registers nothing: runs at work meanwhile do not notice. Batches that go together
are emitted by one job, before the first of them is compared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from txbatch.core.batch.plan import BatchPlan, OfInterval
from txbatch.core.batch.transaction import Run
from txbatch.core.corrections.audit import Audit
from txbatch.core.corrections.verify import (
    Again,
    Books,
    Compared,
    EmitAgain,
    Finding,
    Outcome,
    Recorded,
    check_read,
    judge,
    late,
    sample,
)
from txbatch.core.errors import BadRecord, TxbatchError, Unverifiable
from txbatch.core.protocol.ledger import Head, Ledger
from txbatch.core.protocol.planning import plan_batch
from txbatch.core.protocol.ports import Job
from txbatch.core.protocol.restate import restate_command
from txbatch.core.protocol.spout_coordinators import Coordinators
from txbatch.core.sources.spout import SpoutKind
from txbatch.core.topology.topology import Topology
from txbatch.run.verify_ahead import Readable, ReadAhead

log = logging.getLogger(__name__)
# Returns the files that differ now from the plan of a batch.
Differs = Callable[[Topology, Recorded], Sequence[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Asked:
    """The batches to verify: these txids, or a sample of so many batches, or all batches."""

    txids: Sequence[int] = ()
    sample: int | None = None
    seed: int = 0

    @property
    def all(self) -> bool:
        """True if all batches are verified."""
        return not self.txids and self.sample is None


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifies the batches of one job in one application. The application ends with the call."""

    job: Job
    ledger: Ledger
    books: Books
    emitter: EmitAgain
    differs: Differs
    _kept: list[Again] = field(default_factory=list)
    _ahead: dict[int, Readable] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The topology's name."""
        return self.job.topology.name

    @property
    def _contribute(self) -> bool:
        """True if every state keeps contributions: each batch can then be compared and restated."""
        return all(each.state.contributions for each in self.job.topology.aggregates)

    def verify(self, asked: Asked) -> Iterator[Finding]:
        """Yield a finding of each batch, then of the states, and, unless txids are named, of batches not counted.

        Before reading anything, raise UnknownName; TerminalError for a txid that is not committed; SchemaMismatch if the
        job's definition differs from the ledger's definition.
        """
        self.ledger.check_definition(self.job.topology, self.job.name)
        known = self.books.current(self.name)
        positions = list(known)
        kept = [position for position, folded in known.items() if not folded]
        audit = self.books.audit(self.job.topology)
        if audit.versions:  # unknown: the versions that count
            yield from map(_of_ledger, audit.versions)
            return
        chosen = self._chosen(kept, asked)
        try:
            found = list[Finding]()
            ahead = ReadAhead(self.job.topology, self.emitter, partial(self._to_read, audit), self._ahead)
            for number, txid in enumerate(chosen, 1):
                ahead.look(chosen, number - 1)
                found.append(finding := self._batch(self.books.recorded(self.name, txid), audit))
                log.info("%s (%s of %s)", _line(self.name, finding), number, len(chosen))
                yield finding
            yield from self._states(asked, positions, found)
        finally:
            self.emitter.close()
        yield from map(_of_ledger, _unsaid(audit, found))
        if not asked.txids:
            if len(kept) < len(positions):
                yield Finding("folded", Outcome.SKIPPED, reason=f"{len(positions) - len(kept):,} batches, by retention")
            yield from (Finding("missing", reason=told) for told in self.books.missing(self.name))

    def _chosen(self, positions: Sequence[int], asked: Asked) -> Sequence[int]:
        if asked.txids:
            named = {self.books.recorded(self.name, txid).position: txid for txid in asked.txids}
            return list(named.values())
        if asked.sample is None:
            return positions
        some = sample(positions, asked.sample, asked.seed)
        log.info("%s: %s of %s batches, by seed %s", self.name, len(some), len(positions), asked.seed)
        return some

    def _batch(self, recorded: Recorded, audit: Audit) -> Finding:
        """Return the finding of a batch. If the ledger contradicts itself about the batch, read nothing."""
        told = Finding("batch", position=recorded.position, txid=recorded.txid)
        if (contradictions := audit.of.get(recorded.txid)) is not None:
            return _with(told, Outcome.DIFFERENT, reason=_contradicted(contradictions))
        if recorded.skipped:
            return _with(told, Outcome.SKIPPED, reason=f"its records were given up: {recorded.reason}")
        found = self._read(recorded, told)
        contributed = audit.contributed.get(recorded.txid)
        if contributed is None or found.outcome is Outcome.DIFFERENT:
            return found
        return _with(found, Outcome.DIFFERENT, reason=_contradicted(contributed))

    def _read(self, recorded: Recorded, told: Finding) -> Finding:
        """Read a batch again, and return the finding."""
        try:
            return self._compared(recorded, told)
        except Unverifiable as error:
            changed = self.differs(self.job.topology, recorded)
            again = self._restate(recorded) if changed and error.restates else None
            return _with(told, Outcome.UNVERIFIABLE, reason=error.text, changed=changed, restate=again)

    def _compared(self, recorded: Recorded, told: Finding) -> Finding:
        folded = self.books.foldable(self.job.topology, recorded)
        if len(folded) == len(self.job.topology.aggregates):
            return _with(told, Outcome.UNVERIFIABLE, reason=folded[0].why_not, compared=tuple(folded))
        again, came, readable = self._again(recorded)
        try:
            found = self.books.compare(self.job.topology, recorded, again.manifest, again.partials())
        except BadRecord as error:
            raise Unverifiable(f"what comes out today cannot be stored: {error}") from error
        self._keep(again)
        told = _with(
            told,
            judge(each for each in found if each.why_not is None),
            records=again.manifest.records,
            keys=sum(each.keys for each in found),
            compared=tuple(found),
            reason=_left_out(found),
        )
        if told.outcome is Outcome.EQUAL:
            return told if came is None else self._with_late(recorded, told, came, readable=readable)
        reason = "; ".join(filter(None, [self._why_different(recorded), told.reason]))
        return _with(told, told.outcome, reason=reason, restate=self._restate(recorded))

    def _why_different(self, recorded: Recorded) -> str:
        if recorded.code != self.job.code:
            return "the job's file has changed since; what it counts today differs, or the database was changed by hand"
        return "the source and the job's file are what they were: the database was changed by hand, or the job depends on more"

    def _restate(self, recorded: Recorded) -> str | None:
        """Return the command to count a batch from its source now; None if only a rebuild can."""
        return restate_command(self.name, recorded.txid) if self._contribute else None

    def _again(self, recorded: Recorded) -> tuple[Again, str | None, bool]:
        """Read the counted records again. Return the result, a text about late records of the interval, counted only by a
        restate, and whether the interval can be read as it is now.

        Read an interval with the current files first. If the result differs from the counted records, or cannot be read,
        read the interval again with the files from its plan.
        """
        batch, came, readable = self._readable(recorded), None, True
        emitted = batch.again
        if batch.as_now is not None:
            try:
                again, emitted = emitted or self._emit(recorded, batch.as_now), None
                came = late(recorded, again.manifest.streams)
            except Unverifiable as error:
                readable = False
                came = f"the interval as it is now cannot be read: {error}"
            else:
                if came is None:
                    return again, None, True
                again.remove()
        try:
            again = emitted or self._emit(recorded, batch.then)
            check_read(recorded, again.manifest)
        except Unverifiable as error:
            # What the interval has now says it; the first file that differs may be another interval's.
            told = came if came and readable else "; ".join(dict.fromkeys(filter(None, [came, error.text])))
            raise Unverifiable(told, restates=readable) from error
        return again, came, readable

    def _to_read(self, audit: Audit, txid: int, by: Coordinators) -> Readable | None:
        """Return a batch with its plans; None if it is told without reading, or only its turn tells why it cannot be read."""
        recorded = self.books.recorded(self.name, txid)
        folded = self.books.foldable(self.job.topology, recorded)
        if recorded.txid in audit.of or recorded.skipped or len(folded) == len(self.job.topology.aggregates):
            return None
        try:
            self._check_defined(recorded.plan_again())
        except Unverifiable:
            return None
        return Readable(recorded, recorded.plan_again(), self._as_now(recorded, by))

    def _readable(self, recorded: Recorded) -> Readable:
        """Return a batch with its plans, as prepared ahead unless another version counts by now."""
        ahead = self._ahead.pop(recorded.txid, None)
        if ahead is not None and ahead.recorded == recorded:
            return ahead
        if ahead is not None and ahead.again is not None:
            ahead.again.remove()
        return Readable(recorded, recorded.plan_again(), self._as_now(recorded))

    def _emit(self, recorded: Recorded, plan: BatchPlan) -> Again:
        self._check_defined(plan)
        return self.emitter.emit(self.name, recorded.txid, plan, recorded.position)

    def _check_defined(self, plan: BatchPlan) -> None:
        for name in plan.streams:
            if name not in self.job.topology.streams:
                raise Unverifiable(f"it read stream {name!r}, which is not defined any more")
            if self.job.topology.streams[name].spout.kind is SpoutKind.NON_TRANSACTIONAL:
                raise Unverifiable(f"stream {name!r} can be read only once: its spout is non-transactional")
        if not plan.streams:
            raise Unverifiable("the ledger does not say what it read")

    def _with_late(self, recorded: Recorded, told: Finding, came: str, *, readable: bool) -> Finding:
        changed = self.differs(self.job.topology, recorded)
        reason = "; ".join(filter(None, [came, told.reason]))
        outcome = Outcome.LATE if readable else told.outcome
        return _with(told, outcome, reason=reason, changed=changed, restate=self._restate(recorded))

    def _as_now(self, recorded: Recorded, by: Coordinators | None = None) -> BatchPlan | None:
        """Return the plan to read a batch again, with its interval planned now.

        Return None if the batch has no interval, or the source cannot be asked.
        """
        interval = recorded.interval
        if interval is None or recorded.plan.idle:
            return None
        head = Head(self.name, recorded.txid, None, (), None, {})
        try:
            planned = plan_batch(
                self.job.topology,
                head,
                Run("verify", interval=interval, parameters=recorded.plan.parameters),
                self.ledger.upstream,
                by,
            )
        except TxbatchError as error:
            log.warning("%s: txid %s: the source cannot be asked what it has now: %s", self.name, recorded.txid, error)
            return None
        if planned is None:
            return None
        then, now = recorded.plan_again(), BatchPlan.from_json(planned).streams
        return replace(
            then,
            streams={
                name: now.get(name, of) if isinstance(of, OfInterval) else of for name, of in then.streams.items()
            },
        )

    def _keep(self, again: Again) -> None:
        """Keep staged files while needed: to the end for states without contributions."""
        if self._contribute:
            again.remove()
        else:
            self._kept.append(again)

    def _states(self, asked: Asked, positions: Sequence[int], found: Sequence[Finding]) -> Iterator[Finding]:
        for compared in self.books.states(self.job.topology):
            yield _of_state(compared)
        for aggregate in self.job.topology.aggregates:
            name = aggregate.state.name
            if not aggregate.state.contributions:
                why_not = _why_not_recounted(asked, found, removable=aggregate.removable)
                yield _of_state(Compared(name, why_not=why_not) if why_not else self._recounted(name, positions))

    def _recounted(self, state: str, positions: Sequence[int]) -> Compared:
        partials = (batch for again in self._kept for batch in again.partials()[state])
        try:
            return self.books.recount(self.job.topology, state, partials, max(positions, default=0))
        except TxbatchError as error:
            return Compared(state, why_not=error.text)


def _why_not_recounted(asked: Asked, found: Sequence[Finding], *, removable: bool) -> str | None:
    """Return the reason why a state without contributions cannot be counted again from the source."""
    if not asked.all:
        return "it keeps no contributions, and is compared when all batches are verified"
    if removable:
        return "it keeps no contributions, and what was removed when is not known"
    lost = next((each for each in found if each.outcome is Outcome.UNVERIFIABLE), None)
    return f"it keeps no contributions, and txid {lost.txid} cannot be read again" if lost else None


def _left_out(found: Sequence[Compared]) -> str | None:
    """Return the states left out of a batch's comparison, each with the reason."""
    return "; ".join(f"state {each.state!r} is not compared: {each.why_not}" for each in found if each.why_not) or None


def _unsaid(audit: Audit, found: Sequence[Finding]) -> list[str]:
    """Return the contradictions in the ledger not found in the verified batches."""
    said = {each.txid for each in found}
    told = [*audit.of.items(), *audit.contributed.items()]
    of = [f"txid {txid}: {text}" for txid, texts in told if txid not in said for text in texts]
    return [*of, *audit.others]


def _of_ledger(told: str) -> Finding:
    return Finding("ledger", Outcome.DIFFERENT, reason=_contradicted([told]))


def _contradicted(told: Sequence[str]) -> str:
    return f"the ledger was changed by hand, compare it with a backup: {'; '.join(told)}"


def _of_state(compared: Compared) -> Finding:
    restate = "the state differs from its contributions: rows were changed by hand" if compared.different else None
    return Finding(
        "state",
        compared.outcome,
        state=compared.state,
        keys=compared.keys,
        reason=compared.why_not or restate,
        compared=(compared,),
    )


def _with(finding: Finding, outcome: Outcome | None, **more: Any) -> Finding:
    return replace(finding, outcome=outcome, **more)


def _line(topology: str, finding: Finding) -> str:
    read = "" if finding.records is None else f", {finding.records:,} records"
    return f"{topology}: txid {finding.txid} is {finding.outcome}{read}"
