"""The JSON objects that are stored: their fields and an example of each, as docs/protocol.md shows them.

    .venv/bin/python tests/stored_json.py    # writes them there anew

The examples are what the classes write; a field of an example without a meaning here, or a meaning without such a field, is
an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.loaded import Loaded
from txbatch.core.batch.manifest import Manifest, ReadPartition, StagedFile, StagedState
from txbatch.core.batch.plan import BatchPlan, Gone, OfInterval, Range, Ranges, Successive
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.storage.staging import error_json

DOCUMENT = Path(__file__).parents[1] / "docs" / "protocol.md"
BEGIN, END = "<!-- stored: made by tests/stored_json.py -->", "<!-- end of stored -->"
# Names of the examples that a job, a source or Spark chose.
CHOSEN = {
    **dict.fromkeys(("log", "old_log", "flights", "sentences", "ticks"), "<stream>"),
    **dict.fromkeys(("a", "b", "c", "d"), "<partition>"),
    **dict.fromkeys(("records_by_host",), "<state>"),
    **dict.fromkeys(("count",), "<column>"),
    **dict.fromkeys(("top",), "<parameter>"),
    **dict.fromkeys(("airlines",), "<static state>"),
    **dict.fromkeys(("visits",), "<live state>"),
}
SPOUTS_OWN = (".start", ".end", ".gone", ".plan", ".<parameter>", ".<static state>")
OR_NULL = (".totals.<column>", ".kept", "superseded")
ATTEMPT, TOKEN = TransactionAttempt(7, 2), "8f14e45f-ceea-467f-a8f6-1d2e3c4b5a69"
CODE = "5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b"
DAY = ["2013-01-01T00:00:00+00:00", "2013-01-02T00:00:00+00:00"]
LOG = Ranges({"a": Range(10, 20), "b": Range(0, 7, rest={"records": 7})}, ("a",), {"c": "connection refused"}, ("e",))
PLAN = BatchPlan(
    streams={
        "log": LOG,
        "old_log": Ranges({"d": Range(0, 5, Gone("kept for a week"))}),
        "flights": OfInterval({"interval": DAY, "files": {"2013-01.csv": 1024}, "records": 842}, DAY, 842),
        "sentences": Successive({"start": 3, "end": 6}),
    },
    idle={"ticks": Successive([7])},
    parameters={"top": 3},
    static={"airlines": {"airlines.csv": {"bytes": 1024, "sha256": "e3b0c4"}}},
    as_of={"visits": {"txid": 9, "of": ["2026-11-23T09:00:00+00:00", 1]}},
    watermark={"log": 1356998400000000},
    planned_at=1357002000000000,
    base={"log": 4200},
)
LOADED = Loaded(
    "3.11", [("stream 'log'", "9f86d081884c7d65"), ("state 'records_by_host'", "60303ae22b998861")], ["UNIT"]
)
ASSIGNMENT = Assignment(
    "hosts", ATTEMPT, TOKEN, BatchPlan({"log": LOG}).to_json(), CODE, planned_at=1357002500000000, loaded=LOADED
)
FILE = StagedFile("partials/0/part-0.parquet", 1843, 5, "e3b0c4")
MANIFEST = Manifest(
    topology="hosts",
    attempt=ATTEMPT,
    token=TOKEN,
    code=CODE,
    metadata_digest=ASSIGNMENT.digest,
    streams={
        "log": {
            "a": ReadPartition(10, "-412345678901234567890", 1357002000000000, 0),
            "b": ReadPartition(7, "98765432109876543210", 1357003000000000, 2),
        }
    },
    states={"records_by_host": StagedState((FILE,), 5, {"count": "17"}, 17, 2)},
    unreadable={"log": {"c": "connection refused"}},
)


@dataclass(frozen=True)
class Stored:
    """An object, where it stands, and what its fields mean."""

    title: str
    where: str
    example: Mapping[str, Any]
    meanings: Mapping[str, str]


STORED = (
    Stored(
        "The plan of a batch",
        "`txbatch.batch.metadata`, written once. In format 1, of older ledgers, an entry is the spout's plan itself. Format 3, "
        'of restates, has `"whole": true` besides: of what it names no partition may be left out. Format 4 says what records '
        "are looked up in, format 5 by which watermarks they are late, format 6 which processing time they have, "
        "format 7 from which number on they are, format 8 how many an interval has.",
        PLAN.to_json(),
        {
            "format": "of this object; a reader refuses one that it does not know",
            "streams.<stream>.partitions.<partition>.start": "of a partitioned spout: where the range starts",
            "streams.<stream>.partitions.<partition>.end": "and before what it ends; the next one starts there",
            "streams.<stream>.partitions.<partition>.gone": "why the source no longer keeps it: only to be given up",
            "streams.<stream>.partitions.<partition>.records": "how many records it must give; like any other field, the spout's",
            "streams.<stream>.continues": "the partitions whose range follows one that was planned before",
            "streams.<stream>.unreadable.<partition>": "why a partition could not be asked",
            "streams.<stream>.missing": "partitions that were read before, and are listed no more",
            "streams.<stream>.plan": "of any other spout: what it planned, any JSON value",
            "streams.<stream>.interval": "where it reads by time: the run's interval, in UTC",
            "streams.<stream>.records": "how many records the interval must give, if the plan of the spout says so",
            "idle.<stream>.plan": "the last plan of a stream that is not in the batch, which its next one continues",
            "parameters.<parameter>": "of the run's parameters, those that the spouts declare",
            "as_of.<live state>.txid": "the txid as of which records are looked up in it",
            "as_of.<live state>.of": "which state of that name: when its topology was made, and the first txid that it counts",
            "static.<static state>": "which version of it records are looked up in: of StaticFiles size and sha256 of each file",
            "watermark.<stream>": "by which watermark records are late, in microseconds since 1970",
            "planned_at": "when it was planned, where records have that as a field, in microseconds since 1970",
            "base.<stream>": "of its records the number of the first one, where they are numbered",
        },
    ),
    Stored(
        "The assignment",
        "`assignment.json` in the attempt's folder: all that Spark gets to know.",
        ASSIGNMENT.to_json(),
        {
            "format": "of this object",
            "topology": "its name",
            "txid": "of the batch",
            "attempt_id": "of the attempt: it rises, and is the fence",
            "token": "what tells apart two attempts of the same numbers, of a ledger that was lost or restored",
            "code": "sha256 of the job's code",
            "metadata_digest": "sha256 of the plan's canonical JSON (keys sorted, no blanks)",
            "metadata": "the plan of the batch, above",
            "planned_at": "when the batch was planned, in microseconds since 1970",
            "loaded.python": "the version of Python in which the task that began the attempt loaded the job",
            "loaded.parts": "of each stream, operation and state a digest, by which Spark's driver refuses another job",
            "loaded.variables": "names of variables of the environment that the job's files have, to be told if Spark lacks them",
        },
    ),
    Stored(
        "The manifest",
        "`manifest.json`, written last, and `txbatch.attempt.manifest`: what an attempt read and wrote.",
        MANIFEST.to_json(),
        {
            "format": "of this object",
            "topology": "its name; this and the next five must be those of the assignment",
            "attempt.txid": "of the batch",
            "attempt.attempt_id": "of the attempt that wrote it",
            "token": "of that attempt",
            "code": "sha256 of the job's code that it ran",
            "metadata_digest": "sha256 of the plan's canonical JSON that it read by",
            "streams.<stream>.<partition>.records": "how many records were read; without partitions, of the one called ''",
            "streams.<stream>.<partition>.fingerprint": "the sum of their xxhash64, a number of up to 38 digits",
            "streams.<stream>.<partition>.latest": "of a stream with a watermark: the largest time, in microseconds since 1970",
            "streams.<stream>.<partition>.ahead": "of such a stream: how many records are of a time after the batch was planned",
            "states.<state>.files[].name": "a Parquet file of partials, in the attempt's folder",
            "states.<state>.files[].bytes": "its size",
            "states.<state>.files[].rows": "its rows",
            "states.<state>.files[].sha256": "of its content",
            "states.<state>.rows": "the partials of all files",
            "states.<state>.totals.<column>": "a column's exact sum, else how many values are there, or true",
            "states.<state>.kept": "how many records reached the state; null where an older version wrote it",
            "states.<state>.late": "of a state by windows of streams with a watermark: how many of these were late",
            "unreadable.<stream>.<partition>": "why a partition was left out",
        },
    ),
    Stored(
        "The heartbeat",
        "`fence.json`, named so for history; it holds the heartbeat: whether the attempt's driver may go on. It has no `format` "
        "yet, which stands for 1.",
        Heartbeat(lease_seconds=120, beat=4, superseded="7:3").to_json(),
        {
            "lease_seconds": "how long the driver goes on without a beat",
            "beat": "rises with each renewal of the lease",
            "superseded": "the attempt that took its place; null: none did",
        },
    ),
    Stored(
        "The error",
        "`error.json`: why an attempt failed. It has no `format` yet, which stands for 1.",
        error_json("terminal", "log 7:2: partition 'b' was planned with 7 records, 6 were read"),
        {"kind": "`terminal`: no retry helps; else `transient`", "message": "one line"},
    ),
)


def fields(value: Any, documented: Mapping[str, str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and a value of each field; what is documented whole is not looked into."""
    if path not in documented and isinstance(value, Mapping):
        for name, each in value.items():
            yield from fields(each, documented, f"{path}.{CHOSEN.get(name, name)}".removeprefix("."))
    elif path not in documented and isinstance(value, list | tuple):
        for each in value:
            yield from fields(each, documented, f"{path}[]")
    else:
        yield path, value


def section(stored: Stored) -> str:
    """Return an object's table and example; raise ValueError where its fields are not those that have a meaning."""
    found = dict(fields(stored.example, stored.meanings))
    if found.keys() != stored.meanings.keys():
        raise ValueError(f"{stored.title}: {sorted(found.keys() ^ stored.meanings.keys())}")
    rows = [f"| `{path}` | {json_type(path, found[path])} | {meaning} |" for path, meaning in stored.meanings.items()]
    lines = [f"### {stored.title}", "", stored.where, "", "| field | JSON | meaning |", "|---|---|---|", *rows]
    return "\n".join([*lines, "", "```json", shown(stored.example), "```"])


def shown(value: Any, indent: str = "") -> str:
    """Return a value's JSON, on one line where it is short."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or len(indent + line) <= 100:
        return line
    inner = indent + "  "
    each = ",\n".join(f"{inner}{json.dumps(name)}: {shown(member, inner)}" for name, member in value.items())
    return f"{{\n{each}\n{indent}}}"


def json_type(path: str, value: Any) -> str:
    """Return what JSON calls a field's values."""
    if path.endswith(SPOUTS_OWN):
        return "any"
    if path.endswith(OR_NULL):
        return f"{json_type('', value)} or null"
    names = {str: "string", int: "number", float: "number", list: "array", tuple: "array", dict: "object"}
    return names[type(value)]


def with_sections(document: str) -> str:
    """Return the document with the objects as they are now."""
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n\n" + "\n\n".join(map(section, STORED)) + f"\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_sections(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{DOCUMENT.name}: {len(STORED)} objects\n")
