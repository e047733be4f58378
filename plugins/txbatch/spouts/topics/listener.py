"""Which protocol a port of brokers speaks: TLS, or Kafka's own in the clear. Asked once a request is not answered."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_SECONDS, _MOST_HOSTS = 1.0, 3
# A request for the versions that a broker speaks, of a client without a name; its answer begins with the same number.
_API_VERSIONS, _NUMBER = 18, 20_240_229
_ASKED = struct.pack(">hhih", _API_VERSIONS, 0, _NUMBER, -1)


def wrong_protocol(options: Mapping[str, Any]) -> str | None:
    """Return what is wrong if the brokers surely speak another protocol than the options have; None if nobody can say."""
    tls = "ssl" in str(options.get("security.protocol") or "").lower()
    for host, port in _hosts(str(options.get("bootstrap.servers"))):
        with suppress(OSError), socket.create_connection((host, port), _SECONDS) as connection:
            if tls and _speaks_plainly(connection):
                return (
                    "has brokers that speak no TLS at this port; take their port of TLS, or security.protocol "
                    "SASL_PLAINTEXT or PLAINTEXT"
                )
            if not tls and _speaks_tls(connection, host):
                return "has brokers that speak TLS at this port; set security.protocol to SASL_SSL or SSL"
    return None


def _hosts(servers: str) -> list[tuple[str, int]]:
    """Return the first hosts and ports of a list.

    >>> _hosts("a:9092,SSL://b:9093,[::1]:9094,c")
    [('a', 9092), ('b', 9093), ('::1', 9094)]
    """
    found = (each.rpartition("://")[2].strip().rpartition(":") for each in servers.split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in found if port.isdecimal()][:_MOST_HOSTS]


def _speaks_plainly(connection: socket.socket) -> bool:
    """Return True if the other side answers a request of Kafka in the clear."""
    connection.sendall(struct.pack(">i", len(_ASKED)) + _ASKED)
    return connection.recv(8)[4:] == struct.pack(">i", _NUMBER)


def _speaks_tls(connection: socket.socket, host: str) -> bool:
    """Return True if the other side begins TLS, whoever it is: nothing is sent to it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(connection, server_hostname=host):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
