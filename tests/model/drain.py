"""The end of every story: all partitions are there, runs come back and new ones come, one after the other, and finish."""

from __future__ import annotations

from model.oracle import Violation, check, counted_by, given_up, require
from model.story import Story

from txbatch.core.batch.transaction import Batch, BatchStatus
from txbatch.core.errors import NotItsTurn, TakenBack, TxbatchError
from txbatch.core.protocol.coordinator import NothingNew

ROUNDS = 12


def drain(story: Story) -> None:
    """Run until nothing is new; then every record counts exactly once, or was given up. Violation when it does not."""
    try:
        _drain(story)
    except (TxbatchError, Violation) as error:
        raise Violation(f"when all is drained: {error}") from None


def _drain(story: Story) -> None:
    for partition in story.source.late:
        story.source.appear(partition)
    story.slow, story.astray = None, None
    rounds = ROUNDS + 3 * story.size.txids
    for number in range(rounds):
        for run in [f"r{each}" for each in range(story.size.runs)] if number % 4 == 0 else []:
            finish(story, run)
        if finish(story, f"fresh {number}"):
            break
    else:
        require(False, f"after {rounds} rounds there is still something to do: someone waits for the dead (R6)")
    seen = story.view.seen(story.name)
    check(seen, story.read, story.source, story.size.max_pending)
    counted = frozenset().union(*counted_by(seen, story.read).values()) | given_up(seen)
    lost = story.source.records() - counted
    require(not lost, f"records were lost: {sorted(lost)}")


def finish(story: Story, run: str) -> bool:
    """One run through all its steps, as far as it gets; True when there is nothing for it to do, nor for anyone."""
    expire(story)
    batch = story.initialize(run)
    if isinstance(batch, NothingNew):
        return not any(not each.status.final for each in story.view.seen(story.name).batches)
    if not isinstance(batch, Batch) or batch.status is BatchStatus.COMMITTED:
        return False
    try:
        if batch.status is BatchStatus.PLANNED:
            story.attempt(run, batch.txid)
            story.emit(batch.txid, len(story.works[batch.txid]) - 1)
        try:
            committed = commit_newest(story, batch.txid)
        except TakenBack:
            story.attempt(run, batch.txid)
            story.emit(batch.txid, len(story.works[batch.txid]) - 1)
            committed = commit_newest(story, batch.txid)
        if committed:
            story.success(batch.txid)
    except NotItsTurn:
        pass  # those before it come first
    return False


def commit_newest(story: Story, txid: int) -> bool:
    """Whether it is committed."""
    return story.commit(txid, len(story.works[txid]) - 1)


def expire(story: Story) -> None:
    """Whoever was there is gone."""
    for batch in story.view.seen(story.name).batches:
        if not batch.status.final:
            story.expire(batch.txid)
