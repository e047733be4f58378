"""A server of the pages' files and of the example payloads, for a browser; and of the few routes of Airflow that an act asks.

The answers hold markup, characters that turn the order of text, numbers beyond JavaScript's and errors of many characters.
"""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from support import until

HERE = Path(__file__).parent
STATIC = HERE.parents[1] / "plugins" / "txbatch" / "ui" / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
TOPOLOGIES = {"flights": "topology", "orders": "topology_empty", "clicks": "topology_partitions"}
BATCHES = {2: "batch_replaced", 31: "batch_restate", 33: "batch_failing", 99000: "batch_partitions"}
CHANGED = "txbatch: txid 35 restates txid 30"
# What a run that verifies leaves behind.
FOUND = [
    {
        "what": "state flights",
        "outcome": "DIFFERENT",
        "reason": "rows were changed by hand <b>",
        "keys": "B6, JFK; UA, \u202eRWE",
        "restate": "",
    }
]
# Airflow's page around the frame, with the sandbox that Airflow gives the frame.
AROUND = """<!doctype html><html class="dark"><title>Airflow</title>
<iframe name="tab" sandbox="allow-scripts allow-same-origin allow-forms allow-downloads" width="1300" height="800"
 src="txbatch/page?dag_id=flights"></iframe></html>"""


def payload(name: str) -> Any:
    """Return an example of an answer."""
    return json.loads((HERE / "payloads" / f"{name}.json").read_text(encoding="utf-8"))


@dataclass
class Examples:
    """What is answered, and what was asked: the paths of the requests, and the bodies of those to Airflow."""

    base: str = ""
    asked: list[str] = field(default_factory=list)
    posted: list[tuple[str, Any]] = field(default_factory=list)
    # An answer in place of the example: by a part of the path, a status and a payload.
    instead: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def url(self, query: str = "") -> str:
        """Return the address of the page."""
        return f"{self.base}/txbatch/page{query}"

    def count(self, part: str) -> int:
        """Return how many requests had this part in their path."""
        return sum(part in each for each in self.asked)

    def reset(self) -> None:
        """Forget what was asked, and answer by the examples again."""
        self.asked.clear()
        self.posted.clear()
        self.instead.clear()


def _answer(path: str, query: str) -> Any:
    """Return the example for a path below `api/`."""
    parts = path.split("/")
    if parts == ["topologies"]:
        return payload("topologies")
    if parts[0] == "errors":
        return payload("explained")
    if len(parts) > 1 and parts[1] not in TOPOLOGIES:
        return None
    one, rest = payload(TOPOLOGIES[parts[1]]), parts[2:]
    match rest:
        case []:
            return one
        case ["turn"]:
            newest = one["topology"]["newest_txid"]
            batches = payload("batches") if newest else {"batches": [], "next": None}
            return {"one": one, "batches": batches}
        case ["overview"]:
            return payload("overview" if parts[1] == "flights" else "overview_large")
        case ["batches", txid]:
            return payload(BATCHES.get(int(txid), "batch"))
        case ["batches", _, "changes"]:
            return payload("batch_changes")
        case ["states", _, "as-of"]:
            return payload("as_of")
        case ["states", _, "why"]:
            return payload("why" if "B6" in query else "why_gone" if "UA" in query else "why_unequal")
        case ["states", _, "changes"]:
            return payload("state_changes")
        case ["states", _, "keys"]:
            return payload("keys")
        case ["runs", run]:
            return payload("run" if run == "one" else "run_catch_up" if run == "many" else "run_none")
        case [name]:
            return payload(name)
    return None


def application(examples: Examples) -> Starlette:
    """Return the server's application."""

    def file(name: str) -> Response:
        path = (STATIC / name).resolve()
        if not path.is_relative_to(STATIC) or not path.is_file():
            return Response(status_code=404)
        return FileResponse(
            path,
            media_type=TYPES[path.suffix],
            headers={"content-security-policy": POLICY, "cache-control": "no-cache"},
        )

    async def page(_: Request) -> Response:
        return file("page.html")

    async def static(request: Request) -> Response:
        return file(request.path_params["name"])

    async def api(request: Request) -> Response:
        path, query = request.path_params["path"], request.url.query
        examples.asked.append(f"{path}?{query}")
        for part, (status, told) in examples.instead.items():
            if part in f"{path}?{query}":
                return JSONResponse(told, status)
        told = _answer(path, query)
        return JSONResponse(payload("error_404"), 404) if told is None else JSONResponse(told)

    async def airflow(request: Request) -> Response:
        path = request.path_params["path"]
        for part, (status, told) in examples.instead.items():
            if part in f"airflow:{request.method}:{path}":
                return JSONResponse(told, status)
        if request.method == "POST":
            examples.posted.append((path, await request.json()))
            return JSONResponse({"dag_run_id": "manual__2026-11-27T12:00:00+00:00", "state": "queued"})
        if path.endswith("xcomEntries"):
            return JSONResponse({"xcom_entries": [{"task_id": "emit_batch", "key": "plan"}], "total_entries": 1})
        if "xcomEntries/" in path:
            return JSONResponse({"value": payload("plan") if path.endswith("/plan") else FOUND})
        if "/dagRuns/" in path:
            return JSONResponse(
                {"dag_run_id": "manual__2026-11-27T12:00:00+00:00", "state": "success", "note": CHANGED}
            )
        return JSONResponse({"dag_id": "flights", "is_paused": True})

    async def around(_: Request) -> Response:
        return HTMLResponse(AROUND)

    async def of_airflow(request: Request) -> Response:
        return HTMLResponse(f"<title>{html.escape(request.url.path)}</title>")

    return Starlette(
        routes=[
            Route("/around", around),
            Route("/dags/{path:path}", of_airflow),
            Route("/api/v2/auth/login", of_airflow),
            Route("/txbatch/page", page),
            Route("/txbatch/static/{name:path}", static),
            Route("/txbatch/api/{path:path}", api),
            Route("/api/v2/{path:path}", airflow, methods=["GET", "POST"]),
        ]
    )


@contextmanager
def served(application: Callable[..., Any]) -> Iterator[str]:
    """Context manager. Serve an application in a thread, and give its address."""
    server = uvicorn.Server(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
