"""Jobs and answers of the command `txbatch`."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from click.testing import Result
from sqlalchemy import Engine, text

COUNT = 'stream.group_by("word").persistent_aggregate(OpaqueState({state!r}), count=Count())\n'
TOPOLOGY = (
    'topology = Topology({name!r})\nstream = topology.new_stream("in", FixedBatchSpout("{fields}", 1, ("a"), ("b")))\n'
)


# Jobs of a log, with two records a batch, and of days by the hour; `root` is where that is.
WORDS_OF_LOG = """
topology = Topology("words")
stream = topology.new_stream("in", OpaquePartitionedLogSpout({root!r}, max_records=2))
stream.group_by("line").persistent_aggregate(OpaqueState("words"), count=Count(), last=Max("record_offset"))
"""
DAYS = """
from datetime import datetime
class Days(IntervalSpout):
    def batch(self, plan):
        start, end = map(datetime.fromisoformat, plan["interval"])
        lines = [line for name in plan["files"] for line in (self.root / name).read_text().split()]
        read = [(datetime.fromisoformat(at), name) for at, name in (line.split(",") for line in lines)]
        return [(name,) for at, name in read if start <= at < end]
topology = Topology("days")
stream = topology.new_stream("in", Days({root!r}, "at timestamp, name string", time="at")).project("name")
stream.group_by("name").persistent_aggregate(TransactionalState("days"), count=Count())
"""
MAIN = "if __name__ == '__main__':\n    raise SystemExit(emit(topology))\n"


def job_of(name: str, state: str, fields: str = "word string") -> str:
    return TOPOLOGY.format(name=name, fields=fields) + COUNT.format(state=state)


def refused(result: Result, told: str) -> None:
    """Exit code 1, nothing on stdout, one line that says why."""
    assert (result.exit_code, result.stdout) == (1, "")
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("txbatch: ")]
    assert len(errors) == 1


def contents(engine: Engine) -> dict[str, tuple[int, str]]:
    """Every table and view of the database: how many rows, and a digest of them."""
    found = {}
    with engine.connect() as connection:
        names = connection.execute(
            text(
                "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE c.relkind IN ('r', 'p', 'v') AND n.nspname !~ '^(pg_|information_schema)' ORDER BY 1"
            )
        ).scalars()
        for name in list(names):
            digest = "md5(coalesce(string_agg(t::text, ';' ORDER BY t::text), ''))"
            rows, told = connection.exec_driver_sql(f"SELECT count(*), {digest} FROM {name.replace('%', '%%')} t").one()
            found[name] = rows, told
    return found


def rows(result: Result) -> list[dict[str, Any]]:
    """What a command printed with --json."""
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@dataclass(frozen=True)
class Told:
    """What an operator reads of an error: the code, whether a number is wrong, and the command to copy."""

    code: str
    numbers: str
    command: list[str]


def told(result: Result) -> Told:
    """Read an error as an operator does, from the lines that are printed alone: one error, one way out."""
    assert result.exit_code == 1, result.output
    lines = result.stderr.splitlines()
    ((at, error),) = [(at, line) for at, line in enumerate(lines) if line.startswith("txbatch: TX")]
    parts = dict(re.fullmatch(r"  (.+?[?:]) (.+)", line).groups() for line in lines[at + 1 :])  # type: ignore[union-attr]
    assert parts["More:"] == f"txbatch explain {error.split()[1]}"
    named = re.findall(r"`(txbatch [a-z-]+(?: [^`]+)?)`", error)
    command = parts.get("Next:") or named[0]
    program, *arguments = shlex.split(command)
    assert program == "txbatch"
    return Told(error.split()[1], parts["Is any number wrong?"], arguments)
