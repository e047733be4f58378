"""A table is read by TLS whose certificates are looked at. The embedded server has none: a small front speaks TLS for it."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from source_tables import VARIABLE, Shop, shop_in
from spouts.kafka_tls import Authority, in_files
from sqlalchemy import make_url

from txbatch import settings
from txbatch.orchestration.airflow import resolve_settings

_LENGTH, _ASKS_FOR_TLS = 8, 80877103


@contextmanager
def front(of: str, tls: ssl.SSLContext) -> Iterator[int]:
    """Context manager. Yield a port that speaks TLS, and hands on to the socket of a server."""

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while struct.unpack(">ii", self.request.recv(_LENGTH))[1] != _ASKS_FOR_TLS:
                self.request.sendall(b"N")  # of Kerberos
            self.request.sendall(b"S")
            with (
                suppress(OSError),
                tls.wrap_socket(self.request, server_side=True) as outer,
                socket.socket(socket.AF_UNIX) as inner,
            ):
                inner.connect(of)
                back = threading.Thread(target=pump, args=(inner, outer), daemon=True)
                back.start()
                pump(outer, inner)
                inner.shutdown(socket.SHUT_RDWR)
                back.join(10)

    class Front(socketserver.ThreadingTCPServer):
        daemon_threads, allow_reuse_address = True, True

    with Front(("127.0.0.1", 0), Connection) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def pump(source: socket.socket, target: socket.socket) -> None:
    """Hand on what comes, until nothing more does."""
    with suppress(OSError):
        while said := source.recv(65536):
            target.sendall(said)


@pytest.fixture
def shop(databases: Callable[[str], str]) -> Iterator[Shop]:
    with shop_in(databases("shop")) as made:
        made.insert(7, 8)
        yield made


def by_tls(shop: Shop, port: int, **options: str) -> dict[str, Any]:
    """Return the fields of a connection that leads through a front."""
    url = make_url(shop.url)
    extra = {"sslmode": "verify-full", **options}
    return {"host": "127.0.0.1", "port": port, "login": url.username, "schema": url.database, "extra": extra}


def url_of(fields: dict[str, Any]) -> str:
    options = "&".join(f"{name}={value}" for name, value in fields["extra"].items())
    return f"postgresql://{fields['login']}@{fields['host']}:{fields['port']}/{fields['schema']}?{options}"


@pytest.mark.parametrize("form", ["variable", "connection"])
def test_a_table_is_read_by_tls_with_a_certificate_of_the_client(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
) -> None:
    authority, url = Authority(), make_url(shop.url)
    made = in_files({"ssl.ca.pem": authority.pem, **authority.client()}, tmp_path)
    Path(made["ssl.key.location"]).chmod(0o600)
    files = {
        "sslrootcert": made["ssl.ca.location"],
        "sslcert": made["ssl.certificate.location"],
        "sslkey": made["ssl.key.location"],
    }
    with front(f"{url.query['host']}/.s.PGSQL.{url.query['port']}", authority.context(asks=True)) as port:
        fields = by_tls(shop, port, **files)
        monkeypatch.delenv(VARIABLE)
        if form == "variable":
            monkeypatch.setenv(VARIABLE, url_of(fields))
        else:
            monkeypatch.setenv("AIRFLOW_CONN_TXBATCH_SOURCE_SHOP", json.dumps({"conn_type": "postgres", **fields}))
            resolve_settings()
        try:
            assert shop.take() == [7, 8]
        finally:
            settings.sources_from(lambda name: None)


@pytest.mark.parametrize(
    ("case", "code", "told"),
    [
        ("stranger", "TX820", "certificate verify failed"),
        ("name", "TX820", "does not match host name"),
        ("client", "TX820", "alert certificate required"),
        ("file", "TX806", "an option that cannot be used"),
    ],
)
def test_what_is_wrong_is_no_outage(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str, code: str, told: str
) -> None:
    """No retry helps, and no part of the URL is shown."""
    authority, url = Authority(), make_url(shop.url)
    trusted = Authority() if case == "stranger" else authority
    file = tmp_path / "heron.pem"
    if case != "file":
        file.write_text(trusted.pem)
    tls = authority.context(of="db.example" if case == "name" else "127.0.0.1", asks=case == "client")
    with front(f"{url.query['host']}/.s.PGSQL.{url.query['port']}", tls) as port:
        monkeypatch.setenv(VARIABLE, url_of(by_tls(shop, port, sslrootcert=str(file))))
        with refused(code, "source 'shop'", told) as error:
            shop.plan()
    assert not [piece for piece in ("heron", "127.0.0.1", "db.example") if piece in str(error.value)]
