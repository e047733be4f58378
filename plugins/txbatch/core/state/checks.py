"""The further places to which a state may write: tables for new values, folders for files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from txbatch.core.errors import InvalidArgument, NameTaken, NotAnotherDatabase, OutOfPlace
from txbatch.core.records.fields import checked_name
from txbatch.core.state.files import Files
from txbatch.core.state.new_values import NewValuesTable

if TYPE_CHECKING:
    from txbatch.core.state.state import State

# Schemas of the ledger and the server. A generation has schemas of its own, such as state_next_7 (R23).
_OURS = re.compile(
    r"txbatch|information_schema|pg_.*|(report|state|contribution(_base|_partition)?)(_(next|past)_\d+)?", re.DOTALL
)


def checked_table(state: State, table: str) -> NewValuesTable:
    """Return the named table. Raise DefinitionError if the state's commit cannot fill the table, or if the table is reserved."""
    of = f"state {state.name!r}: new_values_into({table!r})"
    schema, dot, name = str(table).partition(".")
    if not dot or "." in name:
        raise InvalidArgument(f"{of} names no table; write schema and table, such as 'audit.{state.name}_changes'")
    if _OURS.fullmatch(schema):
        raise NameTaken(f"{of}: the schema {schema!r} is the ledger's or the server's; name one of your own")
    if state.database is not None:
        raise NotAnotherDatabase(f"{of}: the state is kept apart, in {state.database!r}, which is committed by itself")
    return NewValuesTable(checked_name(schema, "schema"), checked_name(name, "table"))


def check_tables(states: Iterable[State]) -> None:
    """Raise DefinitionError if two states write into one table: the rows of both would look the same."""
    taken: dict[NewValuesTable, str] = {}
    for state in states:
        if state.new_values is not None:
            other = taken.setdefault(state.new_values, state.name)
            if other != state.name:
                raise NameTaken(
                    f"states {other!r} and {state.name!r} write their new values into one table, {state.new_values}; name two"
                )


def check_files(state: State, files: Files, *, pruned: bool) -> Files:
    """Return the files of a state. Raise DefinitionError if a batch's records might be gone when the file is written again."""
    of = f"state {state.name!r}: files={files!r}"
    if not hasattr(files, "write"):
        raise InvalidArgument(f"{of} is no place for files; give ParquetFiles('/lake/{state.name}')")
    if state.database is not None:
        raise NotAnotherDatabase(
            f"{of}: the state is kept apart, in {state.database!r}, and files are written from here"
        )
    if pruned or not state.contributions:
        raise OutOfPlace(
            f"{of}: a batch is written again after a restate or a rebuild, which need its rows and contributions; keep both"
        )
    return files


def check_folders(states: Iterable[State]) -> None:
    """Raise DefinitionError if two states write files into one folder."""
    taken: dict[Path, str] = {}
    for state in states:
        if state.files is not None:
            other = taken.setdefault(state.files.folder, state.name)
            if other != state.name:
                raise NameTaken(
                    f"states {other!r} and {state.name!r} write their files into one folder, {state.files.folder}; name two"
                )
