#!/usr/local/bin/python3 -IS
"""For health checks: `healthy URL [COMPONENT]`. Exit code 0: it answers, and its JSON calls the component healthy."""

import json
import sys
from http.client import HTTPConnection
from urllib.parse import urlsplit


def main(url: str, component: str | None = None) -> int:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=8)  # which asks no proxy
    connection.request("GET", parts.path or "/")
    answer = connection.getresponse()
    if answer.status != 200:
        return 1
    return 0 if component is None else int(json.load(answer)[component]["status"] != "healthy")


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except OSError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
