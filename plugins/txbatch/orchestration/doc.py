"""The page shown by Airflow beside a DAG: the guarantees, the order of commits, and the fields of the run's form."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import Any

from txbatch.core.topology.guarantee import guarantees
from txbatch.core.topology.topology import Topology
from txbatch.launch.job_file import Job
from txbatch.orchestration import catching_up, restating
from txbatch.orchestration.form import fields, giving_up, planning_first
from txbatch.orchestration.result import zone_of

# The description of a parameter without a description in the DAG file.
CHOOSES_DATA = (
    "Chooses the data of this run: stored with its batch, which every retry and clear meets again. "
    "A run that has a batch is refused with another value."
)
_NOTE = "After a run, its note has the txid and the counted records, or the reason why nothing was done."
_NO_DATES = (
    "**To start a run**, trigger the DAG with the form unchanged: the run counts new records. Without new records the run is "
    f"skipped, and the note says *nothing new*. {_NOTE}"
)
_OVER = """**What a run counts.** The schedule says when a run starts, `intervals` in the DAG file which intervals there are,
cut in the zone {zone}. {note}

- A run by the schedule, and a **trigger**: each interval that is over and not counted, a txid each, from the oldest counted one
  on. If there is none, the run is skipped, and the note says *nothing to count*. With an earlier logical
  date: what was over by then.
- A run of a **backfill**: the interval of the backfill, or the newest one that was over by its date.
- A run with a **partition key**: the interval of the partition, once the interval is over.
- **Clear** a run: what is committed stays as it is, and the run looks again for what is over."""
_CATCH_UP = {
    True: (
        "**To catch up**, trigger one run with a whole range in `catch_up`, `2013-01-01/2014-01-01`, and empty the form's "
        "logical date: the run commits each interval of the schedule that is not committed yet, a txid each, in one "
        "Spark application, beside scheduled runs and backfills. As in a backfill, intervals before the DAG's start date or "
        "after its end date are left out. If retried or cleared, the run continues; a later run of a committed interval says "
        "*already committed as txid n*."
    ),
    False: (
        "**To catch up**, trigger one run with `catch_up`: the run counts batch after batch, a txid each, in one Spark "
        "application, until nothing is new. If retried or cleared, the run continues."
    ),
}
_AGAIN = (
    "**To count a committed batch again**, from the present source and by the present job, trigger a run with the txid in "
    "`restate` and the reason in `why`, and empty the form's logical date: after the end date of a DAG, Airflow makes runs "
    "without tasks. The run reads nothing else, on any date. Each named batch is counted again once, even if the run is "
    "retried or cleared, and the note says *txid 9 restates txid 3*."
)
_PLAN_FIRST = (
    "**To see first** what counting again would change, tick `plan_only` beside `restate`: the run reads beside, stores nothing, "
    "and asks for no reason. The note has the records before and after, the XCom `plan` of `emit_batch` the keys."
)
_GIVE_UP = (
    "**To give up a batch** that is not committed, such as a batch of a damaged file, trigger a run with the txid in `abort` and "
    "the reason in `why`, and empty the form's logical date. The records of the batch are free: the next run plans them anew, "
    "from the files of then. With `abort_skip` no later batch reads the records, or, with `abort_partition`, the records of one "
    "partition. A committed batch stays. If the run is retried or cleared, nothing is given up twice."
)


def describe(job: Job) -> str | None:
    """Return the first line of the job file's docstring, or None. Airflow's list of DAGs shows one line for each DAG."""
    docstring = ast.get_docstring(ast.parse(job.path.read_bytes()))
    return docstring.partition("\n")[0] if docstring else None


def page(
    job: Job,
    params: Mapping[str, Any],
    *,
    coalesce: bool = False,
    schedule: object = None,
    intervals: object = None,
    own: Collection[str] = (),
) -> str:
    """Return the doc_md of a topology's DAG, in Markdown.

    `schedule` and `intervals` are arguments of the DAG, `own` the params of the DAG file.
    """
    topology = job.topology
    parts = [
        f"**{topology.name}**, defined in `{job.name}`. Each run is one transaction. You can retry, clear or trigger a run "
        "as often as you like: the table shows how often its records are counted.",
        _guarantees(topology),
        _per_batch(topology),
        _windows(topology),
        _order(topology, coalesce),
        _when(topology, schedule, intervals),
        _CATCH_UP[topology.by_interval] if catching_up.CATCH_UP_PARAM in params else "",
        _AGAIN if restating.RESTATE_PARAM in params else "",
        _PLAN_FIRST if planning_first.PLAN_PARAM in params and planning_first.PLAN_PARAM not in own else "",
        _GIVE_UP if giving_up.offered(fields.taken(topology, own)) and giving_up.ABORT_PARAM in params else "",
        *fields.left_out(topology, own),
        _form(topology, params),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _guarantees(topology: Topology) -> str:
    """Return the guarantee matrix of this topology (R11). Of merged streams, the weakest kind counts."""
    lines = ["| state | guarantee | from the stream |", "|---|---|---|"]
    for aggregate, row in zip(topology.aggregates, guarantees(topology), strict=True):
        kept = f", in `{aggregate.state.database}`" if aggregate.state.database else ""
        state = f"{_cell(row['state'])}, {row['state_kind']}{kept}"
        lines.append(f"| {state} | {row['guarantee']} | {_cell(row['stream'])}: {row['spout']}, {row['spout_kind']} |")
    lines += [f"| {_cell(name)}, static | its reader's, read only | |" for name in topology.static_states]
    return "\n".join(lines)


def _per_batch(topology: Topology) -> str:
    """Describe all states with results of single batches, and the unit: interval or batch."""
    told = [f"**{_cell(row['state'])}** counts {row['counts']}." for row in guarantees(topology) if row["counts"]]
    each = "interval" if topology.by_interval else "batch"
    told += (
        [f"The results of one {each} are counted exactly once, without the records of any other {each}."]
        if told
        else []
    )
    return " ".join(told)


def _windows(topology: Topology) -> str:
    """Describe the windows of each state with windows, and the watermark by which records are late."""
    told = []
    for row in guarantees(topology):
        watermark = f" Its watermark is {row['watermark']}." if row["watermark"] else ""
        told += [f"**{_cell(row['state'])}** counts by {row['windows']}.{watermark}"] if row["windows"] else []
    return " ".join(told)


def _order(topology: Topology, coalesce: bool) -> str:
    how = "by one Spark application" if coalesce else "in parallel"
    many = (
        f"Up to {topology.max_pending} batches are emitted {how}" if topology.max_pending > 1 else "One batch at a time"
    )
    key = "its data interval" if topology.by_interval else "the run"
    return f"{many}; they are committed in the order of their txids. A batch is found again by {key}."


def _when(topology: Topology, schedule: object, intervals: object) -> str:
    if not topology.by_interval:
        return _NO_DATES
    return _dates(zone_of(schedule)) if intervals is None else _OVER.format(zone=zone_of(intervals), note=_NOTE)


def _dates(zone: str) -> str:
    """Explain the name of a run and the dates in Airflow's forms: neither is the counted day."""
    return "\n".join(
        [
            f"**Dates.** A run counts its data interval, cut in the zone {zone}. Runs are named after the interval's *end*: of "
            f"daily ones, the run named after the 5th counts the 4th. {_NOTE}",
            "",
            "- **Backfill**: its dates choose the intervals that *begin* between them, both included, in the zone that the UI "
            f"shows, mostly UTC. Set the UI to {zone} first, or the first day or the last one may be left out.",
            "- **Trigger**: give a logical date *within the interval after* the one you mean, as Airflow takes the newest one "
            "that was over by then. The form's own suggestion is now: after the DAG's end date, where it has one, that is "
            "a run without tasks, which is green and counts nothing; its note says so.",
            "- **Clear** a run: what is committed stays as it is, and the note says *already committed as txid n*.",
        ]
    )


def _form(topology: Topology, params: Mapping[str, Any]) -> str:
    """Explain the parameters of a run, and mark parameters that choose data (R2)."""
    lines = ["| parameter of a run | meaning |", "|---|---|"]
    for name, param in params.items():
        said = getattr(param, "description", None) or ""
        chooses = "Chooses data." if name in topology.parameters and said != CHOOSES_DATA else ""
        lines.append(f"| `{_cell(name)}` | {_cell(' '.join(filter(None, (said, chooses))))} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Escape characters that would end a cell of the table."""
    return text.replace("|", "\\|").replace("\n", " ")
