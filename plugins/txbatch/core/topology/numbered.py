"""Numbers of records: how many records of the stream came before, in committed batches and in the same batch (R29).

Records of a batch are numbered in the order of all fields. A plan has the number of its first record, its `base`. Numbers are
therefore the same in each attempt and restate of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable

from txbatch.core.errors import NameTaken, OutOfPlace
from txbatch.core.records.fields import Field, checked_name
from txbatch.core.topology.nodes import Node, Numbered, Source, Watermarked
from txbatch.core.topology.walks import on_the_way


def numbered(node: Node, name: str) -> Numbered:
    """Return a stream's node whose records have a number, the field `name`.

    DefinitionError for a name that is taken or invalid, and after any step.
    """
    of = f"stream {node.name!r}: numbered({name!r})"
    checked_name(name, f"{of}: field")
    if not isinstance(node.before if isinstance(node, Watermarked) else node, Source):
        raise OutOfPlace(f"{of} stands behind an operation; number records first, before any operation but a watermark")
    if name.lower() in {field.name.lower() for field in node.fields}:
        raise NameTaken(f"{of}: there is a field {name!r} already; give the number another name")
    return Numbered(node.name, (*node.fields, Field(name, "bigint")), node)


def streams_of(topology: str, nodes: Iterable[Node], max_pending: int) -> frozenset[str]:
    """Return the streams with numbered records; DefinitionError if batches may be planned before earlier batches are read."""
    found = frozenset(each.name for node in nodes for each in on_the_way(node) if isinstance(each, Numbered))
    if found and max_pending > 1:
        raise OutOfPlace(
            f"topology {topology!r}: max_pending={max_pending}, and stream {min(found)!r} is numbered: a batch is planned once "
            "all before it are committed, which say from which number on its records are; leave max_pending out"
        )
    return found
