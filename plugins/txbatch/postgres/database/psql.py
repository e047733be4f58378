"""psql for readers, on the database of the ledger."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from psycopg2.extensions import make_dsn
from sqlalchemy import Engine

from txbatch.core.errors import InvalidSetting
from txbatch.embedded import postgres
from txbatch.postgres.database.engine import transaction
from txbatch.postgres.database.queries import sql_root

REPORT = "report"
READ_ONLY = "-c default_transaction_read_only=on"


def make_reader(engine: Engine) -> None:
    """The role `report` of the embedded server, which reads reports and nothing else. What it changed of itself is put back."""
    with transaction(engine) as connection:
        connection.connection.cursor().execute((sql_root() / "reader.sql").read_text(encoding="utf-8"))


def command(engine: Engine, arguments: Sequence[str], *, role: str | None = None) -> tuple[list[str], dict[str, str]]:
    """psql's command line with these arguments, and its environment, which alone holds a password.

    As `role`, else as the URL's, and read-only unless told otherwise, whatever options the URL has. The psql on the PATH, else
    that of the embedded PostgreSQL; EmbeddedPostgresError when there is neither.
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
