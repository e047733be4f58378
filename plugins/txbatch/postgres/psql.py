"""psql for readers, on the database of the ledger."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from psycopg2.extensions import make_dsn
from sqlalchemy import Engine

from txbatch.local import postgres

READ_ONLY = "-c default_transaction_read_only=on"


def command(engine: Engine, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """psql's command line with these arguments, and its environment, which alone holds a password.

    The psql on the PATH, else that of the embedded PostgreSQL; EmbeddedPostgresError when there is neither.
    """
    parameters = engine.dialect.create_connect_args(engine.url)[1]
    password = parameters.pop("password", None)
    environment = {**os.environ, "PGOPTIONS": f"{os.environ.get('PGOPTIONS', '')} {READ_ONLY}".strip()}
    if password is not None:
        environment["PGPASSWORD"] = password
    program = shutil.which("psql") or str(postgres.bin_dir() / "psql")
    return [program, f"--dbname={make_dsn(**parameters)}", *arguments], environment
