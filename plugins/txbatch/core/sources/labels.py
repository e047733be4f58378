"""Several batches of the same partitions in one plan: each range has a label, by which the reader finds the range's batch.

    {"partitions": {<label>: <range>}, "of": {<label>: [<number of the plan>, <partition>]}}

>>> plans = [{"partitions": {"a": {"start": 0, "end": 2}}}, {"partitions": {"a": {"start": 2, "end": 5}}}]
>>> plan = labelled(plans)
>>> plan["partitions"]
{'0/a': {'start': 0, 'end': 2}, '1/a': {'start': 2, 'end': 5}}
>>> partitions_of(plan), partitions_of(plans[0])
({'0/a': 'a', '1/a': 'a'}, {'a': 'a'})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txbatch.core.batch.transaction import Metadata


def labelled(plans: Sequence[Metadata]) -> Metadata:
    """Return one plan of the ranges of several plans, each range with a label of its own."""
    of = {f"{number}/{name}": [number, name] for number, plan in enumerate(plans) for name in plan["partitions"]}
    return {"partitions": {label: plans[number]["partitions"][name] for label, (number, name) in of.items()}, "of": of}


def partitions_of(plan: Metadata) -> Mapping[str, str]:
    """Return the partition of each range of a plan, by the range's label; without labels, a range has the partition's name."""
    of = plan.get("of")
    labels: Iterable[str] = plan["partitions"]
    if not isinstance(of, Mapping) or any(label not in of for label in labels):
        return {label: label for label in labels}
    return {label: of[label][1] for label in labels}
