"""`python -m docs.generate`: write all pages of the reference anew; with names of pages, these alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Engine

from docs.generate.written import PAGES, SQL, file_of, sql
from txbatch.embedded import postgres
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate


@contextmanager
def new_ledger() -> Iterator[Engine]:
    """Context manager. A migrated ledger on a PostgreSQL of its own, which is removed in the end."""
    with TemporaryDirectory(prefix="txbatch-") as folder:
        engine = connect(postgres.start(Path(folder)))
        try:
            migrate(engine)
            yield engine
        finally:
            engine.dispose()
            postgres.stop(Path(folder))


def main(names: Sequence[str]) -> None:
    """Write the pages of these names, or all pages."""
    for name in names or [*PAGES, SQL]:
        if name == SQL:
            with new_ledger() as engine:
                written = sql(engine)
        else:
            written = PAGES[name]()
        file_of(name).write_text(written, encoding="utf-8")
        sys.stdout.write(f"{file_of(name).name}: {len(written.split()):,} words\n")


if __name__ == "__main__":
    main(sys.argv[1:])
