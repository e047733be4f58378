"""The note of a failed task. The first characters tell what is wrong and what to do: lists of runs show only these. The
whole error follows.
"""

from __future__ import annotations

import re

from txbatch.core.errors import TerminalError, TxbatchError
from txbatch.error_pages import Advice

# The room of a line in the note of a run: the plugin cuts longer lines.
LINE_MAX = 880
# The room in lists of runs, behind the plugin's own mark.
HEAD_MAX = 111
_REMEDY_MAX = 50
# A folder's name with blanks has no dot: a dot ends the name of a file. No text matches both ways: each match is quick.
_FOLDER = r"(?:[^/\s;,:`]*|[^/\s;,:.`]*\s[^/;,:.`]*[^/\s;,:.`])/"
# An absolute path, or a URI with a path, and the name at the end; in quotes with spaces.
_QUOTED = re.compile(r"(?P<quote>['\"])(?:[a-z][a-z0-9+.-]*:/)?/(?:[^/'\"]*/)*(?P<name>[^/'\"]+)(?P=quote)")
_PATH = re.compile(rf"(?<![\w.:/])(?:[a-z][a-z0-9+.-]*:/)?/(?:{_FOLDER})*(?P<name>[^/\s'\"`;,():]+)")

# What libpq says before the reason: the host, its address and port, or the path of a socket. And a host without an address.
_SERVER = re.compile(r'connection to server (?:at|on) .{1,300}? failed: |(?<=could not translate host name) "[^"]*"')


def note(error: TxbatchError, advice: Advice, tried: int = 1, tries: int = 1) -> str:
    """Return the note of a task that failed at the try `tried` of so many `tries`: the task may be tried again.

    If the whole text is short and free of absolute paths, the note is the whole text.
    """
    outcome = "failed: " if isinstance(error, TerminalError) else _outcome(tried, tries)
    whole = without_server(f"{outcome}{error}")
    following = f"; next: {advice.next}" if advice.next not in (None, advice.more) else ""
    if len(whole + following) <= HEAD_MAX and without_folders(whole) == whole:
        return whole + following
    told = f"{_head(outcome, error, advice)} | {without_server(str(error))}"
    return told + following if len(told + following) <= LINE_MAX else told


def _outcome(tried: int, tries: int) -> str:
    if tried < tries:
        return f"tried again (try {tried} of {tries}): "
    return "failed: " if tries < 2 else f"failed after {tried} tries: "


def _head(outcome: str, error: TxbatchError, advice: Advice) -> str:
    """Return the error with its code and without folders, cut, and what to do: the error's own words, or a command."""
    wrong, _, remedy = without_folders(without_server(error.text)).partition("; ")
    topology = error.about.get("topology")
    if topology is not None:
        wrong = wrong.removeprefix(f"{topology}: ")
    named = f"next: {advice.next or advice.more}"
    todo = _cut(remedy, _REMEDY_MAX) if remedy else named if len(named) <= HEAD_MAX - 40 else f"next: {advice.more}"
    return f"{_cut(f'{outcome}{error.code} {wrong}', HEAD_MAX - len(todo) - 2)}; {todo}"


def without_server(text: str) -> str:
    """Return a text without the servers that libpq names: notes are for more people than logs.

    >>> without_server('connection to server at "db" (10.0.0.1), port 5432 failed: Connection refused; try again')
    'Connection refused; try again'
    >>> without_server('could not translate host name "db" to address: Name or service not known')
    'could not translate host name to address: Name or service not known'
    """
    return _SERVER.sub("", text)


def without_folders(text: str) -> str:
    """Return a text with the names of files in place of absolute paths.

    >>> without_folders("/var/my data/2013-01-03.csv, line 7: no number, s3://shop/in/a.csv and '/my data/b c.csv'")
    "2013-01-03.csv, line 7: no number, a.csv and 'b c.csv'"
    >>> without_folders("2024-01-01T00:00:00+00:00/2024-01-02T00:00:00+00:00 of jobs/sales.py, and/or 7 / 2")
    '2024-01-01T00:00:00+00:00/2024-01-02T00:00:00+00:00 of jobs/sales.py, and/or 7 / 2'
    """
    return _PATH.sub(r"\g<name>", _QUOTED.sub(r"\g<quote>\g<name>\g<quote>", text))


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 3, 0)] + "..."
