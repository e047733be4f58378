"""The look at a server that the coordinators of tables keep: how many sessions plans take, and that each session ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from txbatch.spouts.tables.planning import KeptLook, Look


class Server:
    """Counts the sessions that are open, and the looks that were made."""

    def __init__(self) -> None:
        self.open, self.looks = 0, 0
        self.kept = KeptLook[Look](self.session, self.look)

    @contextmanager
    def session(self) -> Iterator[Any]:
        self.open += 1
        try:
            yield self
        finally:
            self.open -= 1

    def look(self, session: object) -> Look:
        assert session is self
        self.looks += 1
        return cast("Look", self.looks)

    def plan(self) -> object:
        with self.kept.one_plan():
            assert self.kept.now is self.kept.now
            return self.kept.now

    def fail(self) -> None:
        self.plan()
        raise ZeroDivisionError


@pytest.fixture
def server() -> Server:
    return Server()


def test_each_plan_has_a_look_of_its_own(server: Server) -> None:
    assert (server.plan(), server.open) == (1, 0)
    assert (server.plan(), server.open) == (2, 0)


def test_plans_of_one_look_share_it(server: Server) -> None:
    with server.kept.one_look():
        assert [server.plan(), server.plan(), server.open] == [1, 1, 1]
    assert (server.open, server.plan()) == (0, 2)


def test_a_plan_that_asks_nothing_opens_no_session(server: Server) -> None:
    with server.kept.one_look(), server.kept.one_plan():
        assert server.open == 0
    assert server.looks == 0


def test_a_session_ends_after_an_error(server: Server) -> None:
    with pytest.raises(ZeroDivisionError), server.kept.one_look(), server.kept.one_plan():
        server.fail()
    assert server.open == 0


def test_a_look_that_fails_is_made_anew(server: Server) -> None:
    def fail(session: object) -> Look:
        raise ZeroDivisionError

    server.kept._look, works = fail, server.kept._look
    with pytest.raises(ZeroDivisionError):
        server.plan()
    server.kept._look = works
    assert (server.open, server.plan()) == (0, 1)
