#!/usr/local/bin/python3 -IS
"""For health checks: `healthy URL [COMPONENT]`. Exit code 0: it answers, and its JSON calls the component healthy.

`healthy --within SECONDS URL [COMPONENT]` asks again for so long.
"""

import json
import sys
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

PAUSE_SECONDS = 1


def main(url: str, component: str | None = None) -> int:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=8)  # which asks no proxy
    connection.request("GET", parts.path or "/")
    answer = connection.getresponse()
    if answer.status != 200:
        return 1
    return 0 if component is None else int(json.load(answer)[component]["status"] != "healthy")


def within(seconds: float, *asked: str) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError, HTTPException):
            if main(*asked) == 0:
                return 0
        time.sleep(PAUSE_SECONDS)
    return main(*asked)


if __name__ == "__main__":
    try:
        sys.exit(within(float(sys.argv[2]), *sys.argv[3:]) if sys.argv[1] == "--within" else main(*sys.argv[1:]))
    except OSError as error:
        sys.exit(f"{' '.join(sys.argv[1:])}: {error}")
