"""Poolers between txbatch and PostgreSQL, for example PgBouncer: a pooler gives a session's settings, or the session, away."""

from __future__ import annotations

import re

from psycopg2.extensions import connection, cursor

from txbatch.core.errors import DefinitionError, InvalidSetting

# A setting of ours alone, by which a session is known to have all of them.
MARK = {"txbatch.session": "on"}
_MARKED = "SELECT current_setting('txbatch.session', true) IS NOT NULL"
_REFUSED = re.compile(r"unsupported startup parameter|RDS Proxy")
_WAY_OUT = (
    "txbatch holds names by its sessions and gives sessions their settings, and no retry helps: name the host and the port of "
    "PostgreSQL itself"
)


def refused(message: str) -> DefinitionError | None:
    """Return the error for a pooler that refuses the settings of a session. Return None for any other error."""
    if not _REFUSED.search(message):
        return None
    return InvalidSetting(f"PgBouncer, or another pooler, refuses the settings of a session ({message}). {_WAY_OUT}")


def check_settings(session: connection) -> None:
    """If a pooler between txbatch and PostgreSQL left the session's settings out, end the session and raise DefinitionError."""
    with session.cursor(cursor_factory=cursor) as asked:
        asked.execute(_MARKED)
        marked = asked.fetchone() == (True,)
    session.rollback()
    if not marked:
        session.close()
        raise InvalidSetting(
            "PgBouncer, or another pooler, leaves out the settings of a session, as by ignore_startup_parameters = options. "
            f"{_WAY_OUT}"
        )
