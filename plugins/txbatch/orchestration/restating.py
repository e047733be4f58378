"""A DAG run that counts committed batches again (R17): the fields of its form, and the runs for the protocol.

To the ledger each position is a run of the same name: every task finds the same runs, every time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from txbatch.core.batch.transaction import Interval, Restate, Run
from txbatch.core.errors import InvalidArgument, WhyMissing
from txbatch.core.protocol.restate import positions_within
from txbatch.core.text import LENGTH_MAX, WHY_MAX
from txbatch.orchestration import intervals
from txbatch.orchestration.airflow import run_name
from txbatch.orchestration.result import zone_of
from txbatch.orchestration.schedules import timetable_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.core.topology.topology import Topology
    from txbatch.run.steps import Steps

RESTATE_PARAM, WHY_PARAM, ACCEPT_PARAM = "restate", "why", "accept_missing"
SECTION, WHY_SECTION = "Count again", "Why"
_HOW = "write txids (3, 5) or an interval, whose end is not part of it (2013-01-03/2013-01-05)"


def params(taken: Collection[str]) -> dict[str, Param]:
    """Return the form's fields; none if the topology has parameters of the same names."""
    if {RESTATE_PARAM, WHY_PARAM, ACCEPT_PARAM} & {*taken}:
        return {}
    what = (
        "Txids (3, 5) or an interval (2013-01-03/2013-01-05): the run counts these committed batches again, and nothing else. "
        "Empty the logical date: a single run needs none."
    )
    return {
        RESTATE_PARAM: Param(
            None,
            type=["null", "string"],
            maxLength=LENGTH_MAX,
            title="Count again",
            description=what,
            section=SECTION,
        ),
        WHY_PARAM: Param(
            None,
            type=["null", "string"],
            maxLength=WHY_MAX,
            title="Why",
            description="The reason for counting batches again, or for giving a batch up. Each batch keeps the reason.",
            section=WHY_SECTION,
        ),
        ACCEPT_PARAM: Param(
            False,
            type="boolean",
            title="Without what is missing",
            description="Count the batches without missing records. If off, a batch with missing records stays unchanged.",
            section=SECTION,
        ),
    }


def text_in(context: Context, field: str) -> str:
    """Return the text in a field of the form, without blanks around the text; "" for an empty field."""
    return str(context["params"].get(field) or "").strip()


def why_in(context: Context, what: str) -> tuple[str, str | None]:
    """Return the reason in the form for `what` the run does, and the person behind. Raise WhyMissing without a reason."""
    if why := text_in(context, WHY_PARAM):
        return why, getattr(context["dag_run"], "triggering_user_name", None)
    raise WhyMissing(f"say why {what}: trigger another run, and fill in {WHY_PARAM!r}, too")


def asks(topology: Topology, context: Context) -> bool:
    """True if the form names batches to count again."""
    return RESTATE_PARAM not in topology.parameters and bool(text_in(context, RESTATE_PARAM))


def runs(steps: Steps, context: Context) -> list[Run]:
    """Return the run of each position named in the form, in order; none if the form names no position.

    A batch committed in the interval meanwhile has a higher txid, and comes last. Raise DefinitionError for an invalid
    form, and UnknownName for an unknown txid.
    """
    if not asks(steps.job.topology, context):
        return []
    dag_run, name, (why, by) = context["dag_run"], run_name(context), why_in(context, "it is counted again")
    missing = context["params"].get(ACCEPT_PARAM) is True
    found = [Restate(position, why, by, missing) for position in positions(steps, context)]
    return [Run(name, dag_run.dag_id, dag_run.run_id, restate=each) for each in found]


def positions(steps: Steps, context: Context) -> list[int]:
    """Return the positions named in the form, in order. Raise DefinitionError for an invalid form, and UnknownName for an
    unknown txid.
    """
    from txbatch.wiring import reader_beside

    topology, ledger = steps.job.topology, steps.ledger
    asked = parse(context["params"][RESTATE_PARAM], zone_of(timetable_of(context["dag"])))
    if isinstance(asked, Interval):
        if not topology.by_interval:
            raise InvalidArgument(f"{topology.name} does not read by time: name txids to count again, not {asked}")
        return positions_within(topology.name, asked, reader_beside(steps).counted_within(topology.name, asked))
    return sorted({ledger.batch(topology.name, txid).position for txid in asked})


def parse(text: Any, zone: str) -> list[int] | Interval:
    """Return the txids or the interval named by a text. Times without a zone are in this zone.

    Raise DefinitionError for any other text.

    >>> parse("5, 3", "UTC")
    [5, 3]
    """
    given = str(text).strip()
    try:
        if "/" in given:
            return intervals.parse(given, zone)
        txids = given.replace(",", " ").split()
        if not txids:
            raise ValueError(given)
        return [_txid(each) for each in txids]
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"restate {given[:200]!r} names nothing that could be counted again; {_HOW}") from error


def _txid(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**63):
        raise ValueError(text)
    return int(text)
