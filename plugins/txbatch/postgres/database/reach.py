"""Whether a database takes sessions now: an outage passes by itself, a login that is refused does not."""

from __future__ import annotations

import re

from sqlalchemy import text

from txbatch.core.errors import OutcomeUnknown, TransientError, TxbatchError
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.transaction import transaction

# The words of the server, or of a pooler, for a refused login, and the words of libpq without a password or a certificate.
# The driver tells no SQLSTATE of a refused session. A server of another language, and any other word, counts as away.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|pg_hba\.conf rejects|no such database|"
    r"(?:role|database) .* does not exist|is not permitted to log in|permission denied for database|"
    r"is not currently accepting connections|does not support SSL|certificate verify failed|root certificate file"
)
_ADVICE = "; try again, or see `txbatch doctor`"


def away(url: str) -> str | None:
    """Return why a database takes no sessions that write; None if it does, or if no wait helps."""
    engine = connect(url, application_name="txbatch reach")
    try:
        with transaction(engine) as connection:
            standby = connection.execute(text("SELECT pg_is_in_recovery()")).scalar_one()
        return "the server is a standby, and takes no writes" if standby else None
    except TransientError as error:
        return None if _REFUSED.search(error.text) else error.text.removesuffix(_ADVICE)
    except OutcomeUnknown:
        return "the connection was lost"
    except TxbatchError:
        return None
    finally:
        engine.dispose()
