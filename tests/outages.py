"""A database that goes away and comes back: its socket stands behind a link, and its sessions are ended."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from databases import close, in_database, session
from sqlalchemy import make_url


@dataclass(frozen=True)
class Outage:
    """The database of a URL; `url` leads there as long as it is not away. The path of the link has to be short."""

    of: str
    link: Path

    @property
    def url(self) -> str:
        """The URL by the link."""
        by_link = make_url(self.of).update_query_dict({"host": str(self.link)})
        return by_link.render_as_string(hide_password=False)

    def begin(self) -> None:
        """Take the database away: nobody connects, and who has connected is cut off."""
        self.link.unlink(missing_ok=True)
        with session(in_database(self.of, "postgres")) as ask:
            close(ask, str(make_url(self.of).database))

    def end(self) -> None:
        """Give the database back."""
        with suppress(FileExistsError):
            self.link.symlink_to(str(make_url(self.of).query["host"]))
