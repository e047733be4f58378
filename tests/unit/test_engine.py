"""The settings of an engine's connections, without a server (R10)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from txbatch.core.errors import OutcomeUnknown
from txbatch.postgres.engine import _connecting, translated


class Server:
    """A dialect that connects to PostgreSQL 17; while it does, another thread may do what `meanwhile` does."""

    def __init__(self) -> None:
        self.meanwhile: Any = lambda: None

    def connect(self, *, options: str) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return SimpleNamespace(server_version=170000, options=options, close=lambda: None)


def test_two_threads_that_make_the_first_connections_get_all_settings() -> None:
    connecting, server, made = _connecting(), Server(), []

    def connect() -> None:
        made.append(connecting(server, None, (), {}))

    server.meanwhile = connect
    connect()
    assert ["transaction_timeout=0" in each.options for each in made] == [True, True]


def test_of_a_lost_commit_the_outcome_is_said_to_be_unknown() -> None:
    lost = translated(ConnectionError("server closed the connection unexpectedly"), committing=True)
    assert isinstance(lost, OutcomeUnknown)
    assert str(lost).startswith("outcome unknown: the answer to COMMIT was lost; try again")
