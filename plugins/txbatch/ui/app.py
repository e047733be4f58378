"""The pages' application: headers, errors, the page itself and its static files. Airflow's API server mounts it at /txbatch."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import TimeoutError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from txbatch import __version__
from txbatch.core.errors import (
    CannotAsk,
    DatabaseRefused,
    InvalidKey,
    NotMigrated,
    PastNotKept,
    PastStillOpen,
    PermissionDenied,
    SchemaMismatch,
    TxbatchError,
    UnknownName,
)
from txbatch.core.errors.records import BadRecord
from txbatch.ui import airflow_auth, routes
from txbatch.ui.asked import Refused
from txbatch.ui.reader import SECONDS_MAX, Busy, Reader, TooSlow

log = logging.getLogger(__name__)
STATIC = Path(__file__).parent / "static"
PAGE = "page.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
AWAY = "the ledger does not answer"
OLD = f"this ledger is not of txbatch {__version__}: txbatch migrate, or another version of txbatch"
BUSY = "the pages are busy, and ask again shortly"
SLOW = f"the ledger took longer than {SECONDS_MAX} s"
NO_RIGHT = "the database's role of these pages may not read this report: txbatch grants"
GONE = "a report of this state is gone"
BROKEN = "these pages failed here; the log of the API server has the reason"


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file, as it was when the API server began."""

    body: bytes
    media_type: str

    @property
    def tag(self) -> str:
        """The ETag of the file."""
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'


def create_app(static: Path = STATIC, database: Callable[[], tuple[str, str]] = airflow_auth.database) -> FastAPI:
    """Return the application. Raise OSError if a static file is missing; no database is asked yet."""
    assets = _assets(static)
    app = FastAPI(title="txbatch", version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    _serve(app, assets)
    app.include_router(routes.router(Reader(database), app.openapi))
    for kind in (HTTPException, RequestValidationError, TxbatchError, Refused, TooSlow, Busy, TimeoutError, Exception):
        app.add_exception_handler(kind, _told)
    app.add_middleware(Guarded)
    return app


def _assets(static: Path) -> dict[str, Asset]:
    """Return all static files by name. No other name is ever looked for."""
    found = {
        file.relative_to(static).as_posix(): Asset(file.read_bytes(), _TYPES[file.suffix])
        for file in sorted(static.rglob("*"))
        if file.is_file() and file.suffix in _TYPES
    }
    if PAGE not in found:
        raise FileNotFoundError(f"{PAGE} is missing among the static files of the pages")
    return found


def _serve(app: FastAPI, assets: dict[str, Asset]) -> None:
    @app.get("/page", include_in_schema=False)
    def page(request: Request) -> Response:
        return _sent(assets[PAGE], request)

    @app.get("/static/{name:path}", include_in_schema=False)
    def static(name: str, request: Request) -> Response:
        if name not in assets:
            raise HTTPException(404, "no such file")
        return _sent(assets[name], request)


def _sent(asset: Asset, request: Request) -> Response:
    headers = {"ETag": asset.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)


@dataclass(frozen=True, slots=True)
class Guarded:
    """Middleware that puts the headers on every answer. Data are stored nowhere."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with the headers."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, receive, guarded)


def _told(request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed. Texts of the database go to the log: they name hosts."""
    status, detail = answer_to(error)
    if status >= 500:
        log.error("%s: %s", request.url.path, str(error) or detail, exc_info=error if detail == BROKEN else None)
    return JSONResponse({"detail": detail}, status, {**HEADERS, "Cache-Control": "no-store"})


def answer_to(error: Exception) -> tuple[int, str]:
    """Return the status and the text for an error."""
    match error:
        case HTTPException():
            return error.status_code, str(error.detail)
        case RequestValidationError():
            return 422, "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
        case Refused():
            return 422, str(error)
        case UnknownName():
            return 404, error.text
        case InvalidKey() | BadRecord():
            return 422, error.text
        case PastNotKept() | PastStillOpen() | CannotAsk():
            return 410, error.text
        case SchemaMismatch():
            return 404, GONE
        case NotMigrated():
            return 503, OLD
        case PermissionDenied():
            return 503, NO_RIGHT
        case TooSlow():
            return 503, SLOW
        case Busy() | TimeoutError():
            return 503, BUSY
        case DatabaseRefused() if _is_of_another_version(error):
            return 503, OLD
        case TxbatchError():
            return 503, AWAY
        case _:
            return 500, BROKEN


def _is_of_another_version(error: Exception) -> bool:
    """Return whether a statement named a column or a function that the ledger lacks."""
    code = getattr(getattr(error.__cause__, "orig", None), "pgcode", None)
    return code in ("42703", "42883")
