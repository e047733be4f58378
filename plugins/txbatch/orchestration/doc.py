"""The page that Airflow shows beside a DAG: what is guaranteed, in which order, and what the run's form asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txbatch.core.persistent_aggregate import EXACTLY_ONCE, PersistentAggregate
from txbatch.core.topology import Topology
from txbatch.job_file import Job

_KEPT = "exactly once"
_NOT_KEPT = "at least once"


def page(job: Job, params: Mapping[str, Any]) -> str:
    """The doc_md of a topology's DAG, in Markdown."""
    topology = job.topology
    parts = [
        f"**{topology.name}**, defined in `{job.name}`. Each run is one transaction: however often it is retried, cleared or "
        "triggered again, its records count as the table says.",
        _guarantees(topology),
        _order(topology),
        _form(topology, params),
    ]
    return "\n\n".join(parts) + "\n"


def _guarantees(topology: Topology) -> str:
    """The guarantee matrix of this topology (R11)."""
    lines = ["| stream | spout | kind | state | kind | kept in | guarantee |", "|---|---|---|---|---|---|---|"]
    lines += [_row(each) for each in topology.aggregates]
    lines += [f"| | | | {_cell(name)} | static | its reader, read only | |" for name in topology.static_states]
    return "\n".join(lines)


def _row(each: PersistentAggregate) -> str:
    """A state; of merged streams the weakest kind counts, a state apart has its fence in its own database (R21)."""
    stream, state = each.stream, each.state
    spouts = ", ".join(type(root.spout).__name__ for root in stream.roots)
    kept = f"database `{state.database}`, apart" if state.database else f"`report.{state.name}`"
    guarantee = _KEPT if (stream.kind, state.kind) in EXACTLY_ONCE else _NOT_KEPT
    cells = (stream.name, spouts, stream.kind, state.name, state.kind, kept, guarantee)
    return "| " + " | ".join(_cell(str(cell)) for cell in cells) + " |"


def _order(topology: Topology) -> str:
    many = (
        f"Up to {topology.max_pending} batches are emitted in parallel"
        if topology.max_pending > 1
        else "One batch at a time"
    )
    key = "its data interval" if topology.by_interval else "the run"
    return f"{many}; they are committed in the order of their txids. A batch is found again by {key}."


def _form(topology: Topology, params: Mapping[str, Any]) -> str:
    """What the parameters of a run mean; whether they choose data is what one must know before changing one (R2)."""
    lines = ["| parameter of a run | meaning |", "|---|---|"]
    for name, param in params.items():
        said = getattr(param, "description", None) or ""
        chooses = "Chooses data." if name in topology.parameters and "hooses" not in said else ""
        lines.append(f"| `{_cell(name)}` | {_cell(' '.join(filter(None, (said, chooses))))} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """A text that ends no cell."""
    return text.replace("|", "\\|").replace("\n", " ")
