"""A DAG run that plans first: what counting batches again would change (R17). Like `txbatch restate --plan`."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from txbatch.core.errors import InvalidArgument
from txbatch.orchestration import restating
from txbatch.tables import plain

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.core.batch.transaction import Restate
    from txbatch.core.corrections.verify import EmitAgain
    from txbatch.core.topology.topology import Topology
    from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
PLAN_PARAM = "plan_only"
XCOM_KEY = "plan"
# The greatest number up to which a browser holds every whole number.
EXACT_MAX = 2**53 - 1


def params(topology: Topology, taken: Collection[str]) -> dict[str, Param]:
    """Return the form's field; none if the topology or the DAG has a parameter of the same name, or if nothing can be
    counted again by the form.
    """
    if PLAN_PARAM in taken or not restating.params(topology.parameters):
        return {}
    what = (
        "Only show what counting these batches again would change: the run reads beside, and stores nothing. The note has the "
        "records before and after, the XCom plan the rest. The reason is not needed."
    )
    return {PLAN_PARAM: Param(False, type="boolean", title="Plan first", description=what, section=restating.SECTION)}


def asks(topology: Topology, taken: Collection[str], context: Context) -> bool:
    """True if the run only plans. Raise DefinitionError if the form names nothing to count again."""
    if context["params"].get(PLAN_PARAM) is not True or not params(topology, taken):
        return False
    if not restating.asks(topology, context):
        raise InvalidArgument(
            f"{PLAN_PARAM!r} shows what counting again would change: name txids or an interval in "
            f"{restating.RESTATE_PARAM!r}, too"
        )
    return True


def restates(steps: Steps, context: Context) -> list[Restate]:
    """Return the restate of each position named in the form, in order. Raise the errors of the restate, as far as known
    without reading records.
    """
    from txbatch.core.batch.transaction import Run
    from txbatch.previews import NAME, restates_of

    missing = context["params"].get(restating.ACCEPT_PARAM) is True
    found = restates_of(steps, restating.positions(steps, context), accept_missing=missing)
    for each in found:
        steps.check_restate(Run(NAME, restate=each))
    return found


def preview(steps: Steps, emitter: EmitAgain, context: Context) -> str:
    """Count the batches again beside, leave the XCom, and return the first line of the plan. Ends the emitter."""
    from txbatch.previews import headline, preview_restates

    rows = preview_restates(steps, emitter, restates(steps, context))
    context["ti"].xcom_push(key=XCOM_KEY, value=told(rows))
    for row in rows:
        log.info("%s: %s", row["topology"], headline(row))
        for state in row["states"]:
            log.info("%s: %s", row["topology"], _of_state(state))
    return "; ".join(map(headline, rows))


def told(rows: list[dict[str, Any]]) -> Any:
    """Return the rows of a plan as JSON for a browser: numbers beyond those that a browser holds exactly are texts.

    >>> told([{"keys": 7, "total": 2**53}])
    [{'keys': 7, 'total': '9007199254740992'}]
    """
    return json.loads(
        json.dumps(rows, default=plain),
        parse_int=lambda digits: int(digits) if abs(int(digits)) <= EXACT_MAX else digits,
    )


def _of_state(state: Mapping[str, Any]) -> str:
    changed, touched = state["keys_changed"], state["keys_touched"]
    return f"state {state['state']}: {changed:,} of {touched:,} keys would change; nothing is stored"
