"""`txbatch ask`: the answers of a query stream, from the current states, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import click

from txbatch.cli import arguments, database
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.errors import InvalidKey
from txbatch.core.records.fields import Field
from txbatch.core.text import how_many
from txbatch.reports import Reports

_OF_TEXT: dict[str, Callable[[str], Any]] = {
    "string": str,
    "bigint": int,
    "int": int,
    "smallint": int,
    "boolean": lambda text: {"true": True, "false": False}[text.lower()],
    "double": float,
    "float": float,
    "date": date.fromisoformat,
    "timestamp": lambda text: _in_utc(datetime.fromisoformat(text)),
    "binary": bytes.fromhex,
}


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is a question
@click.argument("topology", type=arguments.TEXT)
@click.argument("query", type=arguments.TEXT)
@click.argument("questions", nargs=-1, required=True, type=arguments.KEY)
@prints_rows(nothing="no answer")
def ask(topology: str, query: str, questions: tuple[str, ...]) -> Rows:
    """Answer QUESTIONS by the query stream QUERY of TOPOLOGY, without Spark.

    \b
      txbatch ask word_count words "the cat" "a dog"

    TOPOLOGY may be its job file. Write a question with several fields in CSV; a time without a zone is UTC. Each question
    is answered by itself, all from one moment of the states. Prints the records of each answer behind its question.
    """
    where = database.start_database()
    job = arguments.job_of(topology, where)
    fields = job.topology.query_stream(query).asked
    asked = [_question(query, fields, each) for each in questions]
    found = Reports(where).ask(job.topology, query, asked)
    named = [dict(zip((field.name for field in fields), each, strict=True)) for each in asked]
    return [question | row for question, rows in zip(named, found, strict=True) for row in rows]


def _question(query: str, fields: Sequence[Field], text: str) -> tuple[Any, ...]:
    """Return a question, with a value for each field. Raise TerminalError if the question has other fields or types."""
    takes = f"query {query!r} takes {', '.join(f'{field.name} {field.type}' for field in fields)}"
    parts: list[str] = [text] if len(fields) == 1 else arguments.parts_of(text)
    if len(parts) != len(fields):
        raise InvalidKey(f"{takes}; {text!r} has {how_many(len(parts), 'part')}: write a question as CSV")
    return tuple(_typed(takes, field, part) for field, part in zip(fields, parts, strict=True))


def _typed(takes: str, field: Field, text: str) -> Any:
    try:
        return _OF_TEXT.get(field.type, Decimal)(text)
    except (ValueError, ArithmeticError, LookupError) as error:
        like = ": write it like 2026-01-05T08:00:00Z; without a zone it is UTC" if field.type == "timestamp" else ""
        raise InvalidKey(f"{takes}; {text!r} is no {field.type}{like}") from error


def _in_utc(moment: datetime) -> datetime:
    """Return a moment in its zone; without a zone in UTC. Raise OverflowError outside the years 1 to 9999 in UTC."""
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    zoned.astimezone(UTC)
    return zoned
