"""The form of a run: its fields in order, and what a filled form asks for. Each run does one thing.

A parameter that the spout declares, or the DAG file's own `params` hold, is the user's: a field of the same name is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.transaction import Run
from txbatch.core.errors import InvalidArgument
from txbatch.core.topology.topology import Topology
from txbatch.orchestration import catching_up, restating
from txbatch.orchestration.airflow import run_name
from txbatch.orchestration.form import giving_up, planning_first

if TYPE_CHECKING:
    from airflow.sdk import Context, Param


class Asked(StrEnum):
    """What a run does."""

    COUNT = "counts new records"
    CATCH_UP = "catches up"
    RESTATE = "counts again"
    PLAN = "plans first"
    GIVE_UP = "gives a batch up"


def taken(topology: Topology, own: Collection[str]) -> frozenset[str]:
    """Return the user's names: declared by spouts, and `own`, of the DAG file."""
    return frozenset((*topology.parameters, *own))


def params(
    topology: Topology, own: Mapping[str, Any], choosing: Mapping[str, Param], waits: Mapping[str, Param]
) -> dict[str, Any]:
    """Return the fields in order: the user's own, those of the day, the rare ones in sections, and the waits.

    A value in the DAG file goes before a default of txbatch.
    """
    of_user = taken(topology, own)
    again = restating.params(topology.parameters)
    fields = {
        **catching_up.params(topology),
        **{name: each for name, each in again.items() if name != restating.WHY_PARAM},
        **planning_first.params(topology, of_user),
        **giving_up.params(of_user),
        **{name: each for name, each in again.items() if name == restating.WHY_PARAM},
        **waits,
    }
    return {**choosing, **{name: each for name, each in own.items() if name not in fields}, **fields, **own}


def asked(topology: Topology, own: Collection[str], context: Context) -> Asked:
    """Return what a filled form asks for. Raise DefinitionError if the form asks for two things, or for nothing whole."""
    of_user = taken(topology, own)
    found = [Asked.GIVE_UP] if giving_up.asks(of_user, context) else []
    found += [Asked.PLAN] if planning_first.asks(topology, of_user, context) else []
    again = restating.asks(topology, context)
    if found and catching_up.is_asked(topology, context):
        found.append(Asked.CATCH_UP)
    if found and again and Asked.PLAN not in found:
        found.append(Asked.RESTATE)
    if len(found) > 1:
        raise InvalidArgument(
            f"the form asks for two things, and a run does one: it {' or '.join(found)}; trigger a run for each"
        )
    if found:
        return found[0]
    if catching_up.asks(topology, context):
        return Asked.CATCH_UP
    return Asked.RESTATE if again else Asked.COUNT


def run_of_form(context: Context) -> Run:
    """Return the run of a form that asks for no data of the run's own."""
    dag_run = context["dag_run"]
    return Run(run_name(context), dag_run.dag_id, dag_run.run_id)


def left_out(topology: Topology, own: Collection[str]) -> list[str]:
    """Return a sentence for each field that is left out, with the command in its place."""
    of_user, name = taken(topology, own), topology.name
    told = list[str]()
    if found := sorted(giving_up.NAMES & of_user):
        told.append(f"The form cannot give a batch up: {_listed(found)} of this DAG. `txbatch abort {name} TXID` does.")
    if planning_first.PLAN_PARAM in of_user:
        told.append(
            f"The form cannot plan first: {_listed([planning_first.PLAN_PARAM])} of this DAG. "
            f"`txbatch restate {name} TXID --plan` does."
        )
    return told


def _listed(names: list[str]) -> str:
    told = ", ".join(f"`{each}`" for each in names)
    return f"{told} is a parameter" if len(names) == 1 else f"{told} are parameters"
