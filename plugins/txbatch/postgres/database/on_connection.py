"""Methods made of the functions of a room, called on the connection of an object."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection, Engine

from txbatch.postgres.database.transaction import transaction

P = ParamSpec("P")
R = TypeVar("R")


class OnConnection(Protocol):
    """An object inside a transaction."""

    connection: Connection


class OnEngine(Protocol):
    """An object with transactions of its own."""

    engine: Engine


def on_connection(function: Callable[Concatenate[Connection, P], R]) -> Callable[Concatenate[OnConnection, P], R]:
    """Return a method that calls a function on the object's connection."""

    @wraps(function)
    def method(self: OnConnection, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self.connection, *args, **kwargs)

    return method


def in_transaction(function: Callable[Concatenate[Connection, P], R]) -> Callable[Concatenate[OnEngine, P], R]:
    """Return a method that calls a function in a transaction of its own."""

    @wraps(function)
    def method(self: OnEngine, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with transaction(self.engine) as connection:
            return function(connection, *args, **kwargs)

    return method
