"""TCP ports of this machine, for programs that need a port number before binding."""

import contextlib
import itertools
import socket
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def reserve_port(preferred: int, host: str = LOOPBACK) -> Iterator[int]:
    """Context manager. Yield a free port, `preferred` if free. No other txbatch process takes the port until the block ends.

    Leave the block once the program listens. Other programs can still take the port first; binding then fails.
    """
    for port in itertools.chain([preferred], iter(lambda: _any_free_port(host), None)):
        with _claim(port) as claimed:
            if claimed and is_free(port, host):
                yield port
                return


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """True if a server could listen on the port now (0 means any port)."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((host, port))
        except OSError:
            return False
        return True


def _any_free_port(host: str) -> int:
    with socket.socket() as server:
        server.bind((host, 0))
        return int(server.getsockname()[1])


@contextlib.contextmanager
def _claim(port: int) -> Iterator[bool]:
    """Context manager. Claim the port among txbatch's processes by an abstract socket name. Linux always frees the name."""
    with socket.socket(socket.AF_UNIX) as claim:
        try:
            claim.bind(f"\0txbatch.port.{port}")
        except OSError:
            yield False
        else:
            yield True
