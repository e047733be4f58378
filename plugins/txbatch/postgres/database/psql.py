"""psql for readers, on the database of the ledger."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from psycopg2.extensions import make_dsn
from sqlalchemy import Engine

from txbatch.core.errors import InvalidSetting
from txbatch.embedded import postgres
from txbatch.postgres.database.queries import sql_root
from txbatch.postgres.database.transaction import transaction

REPORT = "report"
READ_ONLY = "-c default_transaction_read_only=on"


def make_reader(engine: Engine) -> None:
    """Create the role `report` of the embedded server, which only reads reports. Undo the role's changes to its own settings."""
    with transaction(engine) as connection:
        connection.connection.cursor().execute((sql_root() / "reader.sql").read_text(encoding="utf-8"))


def command(engine: Engine, arguments: Sequence[str], *, role: str | None = None) -> tuple[list[str], dict[str, str]]:
    """Return psql's command line with the arguments, and psql's environment. Only the environment holds a password.

    The role is `role` or, without `role`, the URL's. The session is read-only by default, whatever options the URL has. The
    program is the psql on the PATH or, without one, the psql of the embedded PostgreSQL. Raise EmbeddedPostgresError if both
    are missing.
    """
    parameters = engine.dialect.create_connect_args(engine.url)[1]
    password = parameters.pop("password", None)
    if "sslpassword" in parameters:
        raise InvalidSetting(
            "the URL's sslpassword would stand on psql's command line, where others can read it: name an sslkey without one"
        )
    options = f"{os.environ.get('PGOPTIONS', '')} {parameters.pop('options', '')}".split()
    environment = {**os.environ, "PGOPTIONS": " ".join([*options, READ_ONLY])}
    if (
        "service" in parameters or "PGSERVICE" in environment
    ):  # whose file may have options, before those of the environment
        parameters["options"] = environment["PGOPTIONS"]
    if password is not None:
        environment["PGPASSWORD"] = password
    if role is not None:
        parameters["user"] = role
    program = shutil.which("psql") or str(postgres.bin_dir() / "psql")
    return [program, f"--dbname={make_dsn(**parameters)}", *arguments], environment
