"""A DAG run that gives a batch up (R16): the fields of its form, and what the run does. Like `txbatch abort`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from txbatch.core.batch.transaction import BatchStatus
from txbatch.core.errors import InvalidArgument
from txbatch.core.text import LENGTH_MAX, one_line
from txbatch.orchestration.restating import WHY_PARAM, text_in, why_in
from txbatch.run.giving_up import GivenUp, give_up

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.core.batch.transaction import Batch
    from txbatch.run.steps import Steps

ABORT_PARAM, SKIP_PARAM, PARTITION_PARAM = "abort", "abort_skip", "abort_partition"
NAMES = frozenset({ABORT_PARAM, SKIP_PARAM, PARTITION_PARAM, WHY_PARAM})
SECTION = "Give up"
_TXID_MAX = 2**63 - 1


def offered(taken: Collection[str]) -> bool:
    """True if the form has the fields: neither the topology nor the DAG has parameters of the same names."""
    return not NAMES.intersection(taken)


def params(taken: Collection[str]) -> dict[str, Param]:
    """Return the form's fields, if offered."""
    if not offered(taken):
        return {}
    what = (
        "The txid of a batch that is not committed, such as a batch of a damaged file: the run frees the batch's records, and "
        "does nothing else. A later run plans the records anew. Empty the logical date."
    )
    skip = "Also give up the records of the batch: no later batch reads the records."
    partition = "Give up the records of this partition alone: the next run plans the rest of the batch anew."
    return {
        ABORT_PARAM: Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=_TXID_MAX,
            title="Abort",
            description=what,
            section=SECTION,
        ),
        SKIP_PARAM: Param(False, type="boolean", title="Skip its records", description=skip, section=SECTION),
        PARTITION_PARAM: Param(
            None,
            type=["null", "string"],
            maxLength=LENGTH_MAX,
            title="Of one partition",
            description=partition,
            section=SECTION,
        ),
    }


def asks(taken: Collection[str], context: Context) -> bool:
    """True if the run only gives a batch up. Raise DefinitionError for a field that means nothing without another field."""
    if not offered(taken):
        return False
    asked, skip, partition = _asked(context)
    if asked is None and (skip or partition):
        given = SKIP_PARAM if skip else PARTITION_PARAM
        raise InvalidArgument(f"{given!r} is about the batch to give up: name the txid in {ABORT_PARAM!r}, too")
    if partition and not skip:
        raise InvalidArgument(
            f"{PARTITION_PARAM!r} names the records that {SKIP_PARAM!r} gives up: trigger a run with both, or with neither"
        )
    return asked is not None


def _asked(context: Context) -> tuple[Any, bool, str | None]:
    given = context["params"]
    return given.get(ABORT_PARAM), given.get(SKIP_PARAM) is True, text_in(context, PARTITION_PARAM) or None


def run(steps: Steps, context: Context) -> str:
    """Give up the batch named in the form, once, and describe the outcome.

    The stored reason names the DAG run: a run that is retried or cleared finds its own deed by the txid and the reason, and
    changes nothing.
    """
    from txbatch.wiring import reader_beside

    topology, (asked, skip, partition) = steps.job.topology.name, _asked(context)
    txid, reason = int(asked), _reason(context)
    before = steps.ledger.batch(topology, txid)
    aborted = before.status is BatchStatus.ABORTED
    by = reader_beside(steps).given_up_by(topology, reason) if skip and aborted and before.reason == reason else None
    if by is not None or (aborted and not skip):
        given_up = f", and its records were given up by txid {by}" if by else ""
        return f"txid {txid} was aborted before{given_up}; nothing is changed: {before.reason or 'no reason is kept'}"
    with steps.concerning(txid):
        return describe(give_up(steps.ledger, topology, txid, reason, skip=skip, partition=partition), before)


def _reason(context: Context) -> str:
    """Return the reason in the form, with the person and the run behind. Raise WhyMissing without a reason."""
    why, by = why_in(context, "the batch is given up")
    return one_line(f"{why} ({f'{by}, ' if by else ''}run {context['dag_run'].run_id})")


def describe(done: GivenUp, batch: Batch) -> str:
    """Describe what became of the records, and of the run that was at work."""
    worker = f"; {done.of_worker}" if done.of_worker else ""
    if done.by is None:
        free = (
            "its interval is free: clear the run of the interval, or catch up"
            if batch.by_interval
            else "its records are free: the next run plans them anew"
        )
        return f"txid {done.txid} is aborted, and {free}{worker}"
    if done.partition is None:
        return f"txid {done.txid} is given up: txid {done.by} counts its records as read{worker}"
    rest = (
        f"txid {done.by} counts its records of partition {done.partition!r} as read, the next run plans the rest anew"
    )
    return f"txid {done.txid} is given up in part: {rest}{worker}"
