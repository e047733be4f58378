"""Ports for programs that bind them later."""

import socket

import pytest

from txbatch.local.ports import is_free, reserve_port


@pytest.fixture
def free() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_preferred_port_is_given_while_free(free: int) -> None:
    with reserve_port(free) as port:
        assert port == free


def test_port_in_use_is_passed_over(free: int) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free))
        server.listen()
        assert not is_free(free)
        with reserve_port(free) as port:
            assert port != free
            assert is_free(port)


def test_reserved_port_is_given_to_nobody_else_until_it_is_left(free: int) -> None:
    with reserve_port(free) as first, reserve_port(free) as second, reserve_port(second) as third:
        assert len({first, second, third}) == 3
    with reserve_port(free) as port:
        assert port == free
