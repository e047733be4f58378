"""A pooler between txbatch and PostgreSQL is named, whether it refuses a session's settings or leaves them out."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from source_tables import VARIABLE, shop_in
from sqlalchemy import make_url

from txbatch.core.errors import DefinitionError
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.transaction import transaction

OLDER = "unsupported startup parameter: options"
NEWER = "unsupported startup parameter in options: synchronous_commit"
RDS = "Feature not supported: RDS Proxy currently does not support command-line options."


def received(client: socket.socket) -> bytes:
    """The first packet of a client: its protocol, and the names and values of its parameters."""
    return client.recv(struct.unpack("!I", client.recv(4))[0] - 4, socket.MSG_WAITALL)


def without_options(packet: bytes) -> bytes:
    protocol, *parts = packet[:4], *packet[4:].rstrip(b"\0").split(b"\0")
    pairs = zip(parts[::2], parts[1::2], strict=True)
    left = protocol + b"".join(name + b"\0" + value + b"\0" for name, value in pairs if name != b"options") + b"\0"
    return struct.pack("!I", len(left) + 4) + left


def handed_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65536):
            target.sendall(chunk)


@contextmanager
def pooler(url: str, answer: Callable[[socket.socket, str], Any]) -> Iterator[str]:
    """Context manager. The URL of a server that answers one client after the other, and may ask the server of `url`."""
    parsed = make_url(url)
    there = f"{parsed.query['host']}/.s.PGSQL.{parsed.query['port']}"
    with ExitStack() as ending:
        listening = ending.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with listening.accept()[0] as client:
                        answer(client, there)

        threading.Thread(target=serve, daemon=True).start()
        here = {"host": "127.0.0.1", "port": str(listening.getsockname()[1]), "sslmode": "disable"}
        through = parsed.set(query=here | {"gssencmode": "disable"})
        yield through.render_as_string(hide_password=False)
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("says", [OLDER, NEWER, RDS])
def test_one_that_refuses_the_settings_is_named_with_the_way_out(postgres_url: str, says: str) -> None:
    def refuse(client: socket.socket, _: str) -> None:
        received(client)
        fields = b"SFATAL\0C08P01\0M" + says.encode() + b"\0\0"
        client.sendall(b"E" + struct.pack("!I", len(fields) + 4) + fields)

    with (
        pooler(postgres_url, refuse) as url,
        pytest.raises(
            DefinitionError,
            match=r"^TX806 \(no retry helps\): PgBouncer, .* no retry helps: name the host and the port of PostgreSQL",
        ),
        transaction(connect(url)),
    ):
        raise AssertionError


def test_one_that_leaves_the_settings_out_is_named_as_well(postgres_url: str) -> None:
    def leave_out(client: socket.socket, there: str) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(there)
            server.sendall(without_options(received(client)))
            threading.Thread(target=handed_on, args=(server, client), daemon=True).start()
            handed_on(client, server)

    with (
        pooler(postgres_url, leave_out) as url,
        pytest.raises(DefinitionError, match="leaves out the settings of a session, as by ignore_startup_parameters"),
        transaction(connect(url)),
    ):
        raise AssertionError


def test_a_source_sends_no_settings_at_the_start(
    databases: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hands a session of the server from client to client refuses them; the spout sets what it needs as it begins."""
    told = set[bytes]()

    def hand_on(client: socket.socket, there: str) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(there)
            packet = received(client)
            told.update(packet[4:].rstrip(b"\0").split(b"\0")[::2])
            server.sendall(struct.pack("!I", len(packet) + 4) + packet)
            threading.Thread(target=handed_on, args=(server, client), daemon=True).start()
            handed_on(client, server)

    with shop_in(databases("shop")) as shop, pooler(shop.url, hand_on) as url:
        shop.insert(1, 2)
        monkeypatch.setenv(VARIABLE, url)
        assert shop.take() == [1, 2]
    assert told == {b"user", b"database", b"application_name", b"client_encoding"}
