"""What the routes of the pages answer: frozen values. A value, an offset, a sum and a key travel as the text of PostgreSQL.

A number of a payload is a count of batches, attempts or rows, or a txid; the text of a moment is ISO 8601 in UTC, with `Z`.
"""

from __future__ import annotations

from dataclasses import dataclass

from txbatch.ui.state_payloads import Column, State

# What differs from the design of the pages:
#  One.topology        the row of the list is nested: `one.topology.zone`, and `one.show_values` says if numbers are shown
#  One.dags.gc         the DAG of the topology, else txbatch.gc
#  State.apart         the name of the other database, or null; State.past_kept: `why`, `as-of` and `changes` can answer
#  Stream              its name, its fields, and whether it is read by partitions or files (`by_partition`)
#  Batch.failing       the newest attempt of an open batch has failed
#  Batch.late          records by state, as text
#  Exceptional.look    planned, emitted, failing, aborted, restate, skip or replaced
#  Proof.records_read  null before the commit, and so is `equal`; `rebuilt`: a rebuild has counted the batch anew since, so that
#                      `equal` is null. The ledger keeps no verdict of a verification: the runs of T.verify have it
#  Committed           not in the design: the txid that was committed last before a time
#  Changes             keys apart from values: {key: [...], before: [...] | null, after: [...] | null}; the same of a batch
#                      (from_txid = X - 1, to_txid = X) and between two txids
#  Intervals.more      the window has more than 1,000 intervals; `span` also has `first` and `last` of all intervals; with
#                      neither `from` nor `to` the answer is the last 31 days of `span`; a window has at most 400 days
#  Interval.counts     the txid that counts there: a restate's, else the batch's own; null while nothing is committed
#  Partitions.rows     the partitions of this page with the column at the right, `next` for `after`; `search` is a part of a
#                      name; 100 partitions are a page; `after` and `next` are stream and partition as one text
#  Keys.rows           whole keys; `key` given once for each leading column narrows, `starts` is the begin of the next column
#  AsOf                `first` and `last`: what txids can be asked; `committed_at`, `start` and `end` of the batch, null for none
#  Detail.given_up_by  the txid that counts the records of this aborted batch as read; `gives_up`: of such a txid, the batch
#  Detail.interval_by  the batch that has all of this aborted batch's interval by now: the one that counts, else an open one
#  Gap.given_up        the newest aborted batch of the last interval of the gap that had one; null: none, or a batch has the gap


@dataclass(frozen=True, slots=True)
class Topology:
    """A topology in the list. `whole_to`: all is counted from the first interval up to then. `left_out`: how many partitions
    a batch left out, and no batch has read since; None: the ledger is older than migration 49.
    """

    topology: str
    by_interval: bool
    zone: str | None
    newest_txid: int | None
    current_to_txid: int | None
    whole_to: str | None
    committed_at: str | None
    in_flight: int
    failing: int
    waiting: int
    gaps: int
    left_out: int | None


@dataclass(frozen=True, slots=True)
class Topologies:
    """The topologies that the user may read."""

    topologies: list[Topology]


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a topology."""

    stream: str
    fields: list[Column]
    by_partition: bool


@dataclass(frozen=True, slots=True)
class Failing:
    """An open batch with a failed newest attempt."""

    txid: int
    attempt: str
    finished_at: str | None
    error: str | None
    error_code: str | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run, or its batch, that waits for a batch. `alive`: the run that is waited for has shown a sign of life lately."""

    txid: int | None
    run: str | None
    waits_for_txid: int
    waits_for_run: str | None
    alive: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Dags:
    """The DAGs of acts on a topology; None: there is none."""

    verify: str | None
    rebuild: str | None
    gc: str | None


@dataclass(frozen=True, slots=True)
class One:
    """All that the header of a page says of a topology."""

    topology: Topology
    job: str
    paused: bool | None
    may_trigger: bool
    show_values: bool
    streams: list[Stream]
    states: list[State]
    failing: list[Failing]
    waiting: list[Waiting]
    dags: Dags


@dataclass(frozen=True, slots=True)
class Exceptional:
    """A txid not simply committed."""

    txid: int
    look: str


@dataclass(frozen=True, slots=True)
class Overview:
    """All txids of a topology at a glance: 1 to `last` are committed, but for the exceptions."""

    last: int | None
    exceptions: list[Exceptional]
    more: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, as in `report.batches`. `aborted_at` is None for a batch not aborted, and in a ledger older than migration 50."""

    txid: int
    position: int
    kind: str
    status: str
    final: bool
    failing: bool
    start: str | None
    end: str | None
    attempts: int
    records: str | None
    kept: dict[str, str] | None
    keys: dict[str, str] | None
    late: dict[str, str] | None
    ahead: str | None
    seconds: float | None
    emit_seconds: float | None
    dag_id: str | None
    run_id: str | None
    run: str | None
    lease_live: bool
    created_at: str
    committed_at: str | None
    aborted_at: str | None
    reason: str | None
    requested_by: str | None
    replaced_by: int | None


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches, newest first; `next` is the `before` of the older ones, None: there are none."""

    batches: list[Batch]
    next: int | None


@dataclass(frozen=True, slots=True)
class Turn:
    """The answer to an open page, in one request."""

    one: One
    batches: Batches


@dataclass(frozen=True, slots=True)
class Attempt:
    """A try at a batch. `error` is a sentence about rights where the reader may not see errors."""

    attempt_id: int
    attempt: str
    status: str
    run: str | None
    error: str | None
    error_code: str | None
    started_at: str
    finished_at: str | None
    seconds: float | None
    code: str | None


@dataclass(frozen=True, slots=True)
class Read:
    """The range of a partition or file read by a batch, or the sign of an unreadable partition."""

    stream: str | None
    source: str
    status: str
    start: str | None
    end: str | None
    records: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Restatement:
    """A restate of the batch, or the restate that the batch is."""

    txid: int
    position: int
    replaced_txid: int | None
    status: str
    reason: str | None
    requested_by: str | None
    created_at: str
    committed_at: str | None
    records_before: str | None
    records: str | None
    replaced_by: int | None


@dataclass(frozen=True, slots=True)
class Proof:
    """What shows that a batch counts once."""

    attempts_tried: int
    attempt_that_counted: str | None
    records_read: str | None
    records_of_partitions: str | None
    equal: bool | None
    rebuilt: bool


@dataclass(frozen=True, slots=True)
class Successor:
    """The batch that has the interval of an aborted batch by now."""

    txid: int
    kind: str
    status: str


@dataclass(frozen=True, slots=True)
class Detail:
    """A batch with its tries, reads and restates. `triggered_by`: the Airflow user behind the run of the batch."""

    batch: Batch
    attempts: list[Attempt]
    more_attempts: bool
    reads: list[Read]
    more_reads: bool
    restates: list[Restatement]
    proof: Proof
    given_up_by: int | None
    gives_up: int | None
    interval_by: Successor | None
    triggered_by: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """A window of time, with the begin and the end of all intervals of the topology."""

    start: str | None
    end: str | None
    first: str | None
    last: str | None


@dataclass(frozen=True, slots=True)
class Interval:
    """A batch by time. `counts`: the counting txid of the interval, perhaps a restate's.

    `reason` and `requested_by` are those of that txid. `triggered_by`: the user of Airflow who triggered its run.
    """

    start: str
    end: str
    txid: int
    kind: str
    status: str
    failing: bool
    counts: int | None
    attempts: int
    records: str | None
    run_id: str | None
    reason: str | None
    requested_by: str | None
    triggered_by: str | None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An aborted batch, when it was given up, and why. `at` is None in a ledger older than migration 50."""

    txid: int
    start: str
    end: str
    at: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Gap:
    """Time between counted intervals that is not counted. `txid`: a batch has the interval, and is not committed."""

    start: str
    end: str
    txid: int | None
    status: str | None
    given_up: GivenUp | None


@dataclass(frozen=True, slots=True)
class Intervals:
    """The intervals of a window of time. `more`: only the newest of the window, from the begin of `span` on."""

    span: Span
    zone: str | None
    intervals: list[Interval]
    gaps: list[Gap]
    more: bool


@dataclass(frozen=True, slots=True)
class Partition:
    """How far a partition is counted."""

    stream: str
    partition: str
    consumed_to: str | None
    current_to_txid: int | None
    current_to: str | None
    unreadable_since_txid: int | None


@dataclass(frozen=True, slots=True)
class Cell:
    """The range of a partition read by a batch, or the sign of an unreadable partition."""

    stream: str
    partition: str
    txid: int
    status: str
    start: str | None
    end: str | None
    records: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions by name, and what batches of a few txids read of each."""

    first: int
    last: int
    rows: list[Partition]
    cells: list[Cell]
    next: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """The batches that a run of the DAG planned."""

    batches: list[Batch]


@dataclass(frozen=True, slots=True)
class Explained:
    """The page of an error's code, as `txbatch explain` prints the page."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """The answer to a request that failed."""

    detail: str
