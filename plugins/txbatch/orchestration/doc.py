"""The page that Airflow shows beside a DAG: what is guaranteed, in which order, and what the run's form asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txbatch.core.guarantee import guarantees
from txbatch.core.topology import Topology
from txbatch.job_file import Job


def page(job: Job, params: Mapping[str, Any], *, coalesce: bool = False) -> str:
    """The doc_md of a topology's DAG, in Markdown."""
    topology = job.topology
    parts = [
        f"**{topology.name}**, defined in `{job.name}`. Each run is one transaction: however often it is retried, cleared or "
        "triggered again, its records count as the table says.",
        _guarantees(topology),
        _order(topology, coalesce),
        _form(topology, params),
    ]
    return "\n\n".join(parts) + "\n"


def _guarantees(topology: Topology) -> str:
    """The guarantee matrix of this topology (R11): of merged streams the weakest kind counts."""
    lines = ["| state | guarantee | from the stream |", "|---|---|---|"]
    for aggregate, row in zip(topology.aggregates, guarantees(topology), strict=True):
        kept = f", in `{aggregate.state.database}`" if aggregate.state.database else ""
        state = f"{_cell(row['state'])}, {row['state_kind']}{kept}"
        lines.append(f"| {state} | {row['guarantee']} | {_cell(row['stream'])}: {row['spout']}, {row['spout_kind']} |")
    lines += [f"| {_cell(name)}, static | its reader's, read only | |" for name in topology.static_states]
    return "\n".join(lines)


def _order(topology: Topology, coalesce: bool) -> str:
    how = "by one Spark application" if coalesce else "in parallel"
    many = (
        f"Up to {topology.max_pending} batches are emitted {how}" if topology.max_pending > 1 else "One batch at a time"
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
