"""The pages of docs/errors.md: what an error means for the numbers, and the command that comes next.

A message has three parts. The error itself has the first part: what is wrong. The page of the error's code has the other two.
Each page begins its answer on numbers with a short sentence, and its remedy has a first command. The edges, where people
read errors, print both: the command line, the log of Airflow's tasks, the note of a run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from txbatch.core.errors import TxbatchError
from txbatch.places import error_pages

# The names in the commands of a page. The error or its reader holds their values.
NAMES = ("TOPOLOGY", "TXID", "JOB", "STATE", "KEY")
# In place of `txbatch run`, which Airflow does by itself: how the attempts went.
IN_AIRFLOW = "txbatch batches TOPOLOGY --attempts"
_PAGE = re.compile(r"^## (TX\d{3})\b.*?(?=^## |^# |\Z)", re.MULTILINE | re.DOTALL)
_NUMBERS = re.compile(r"\*\*Is any number wrong\?\*\* (.+?\.)(?=\s|\Z)", re.DOTALL)
_COMMAND = re.compile(r"\*\*Do this\.\*\*.*?^ {4}(txbatch .+?)$", re.MULTILINE | re.DOTALL)
_RUN = re.compile(r"txbatch (?:(-v) )?run JOB")
_NAME = re.compile(rf"\b(?:{'|'.join(NAMES)})(?![A-Za-z])")
# A command within a text: with its arguments, or of a kind that needs none.
_WHOLE = re.compile(
    r"`(txbatch (?:doctor|migrate|status|psql|up|down)|txbatch [a-z-]+ (?![-.])[^`]+"
    r"|make [^`]+|pip install [^`]+)`"
)
_REASON = "..."


@dataclass(frozen=True, slots=True)
class Advice:
    """What an error means for the numbers, and the command that comes next, ready to be copied.

    `numbers` is empty for a code without a page. `next` is None if the text of the error names another command: a message
    has one way out.
    """

    code: str
    numbers: str
    next: str | None

    @property
    def more(self) -> str:
        """The command that prints the page of the code."""
        return f"txbatch explain {self.code}"

    def lines(self) -> list[str]:
        """Return the lines to print below the error."""
        numbers = [f"Is any number wrong? {self.numbers}"] if self.numbers else []
        following = [f"Next: {self.next}"] if self.next not in (None, self.more) else []
        return [*numbers, *following, f"More: {self.more}"]


@cache
def read_pages() -> dict[str, str]:
    """Return the page of each code."""
    return {page[1]: page[0].strip() for page in _PAGE.finditer(error_pages().read_text(encoding="utf-8"))}


def advise(
    error: TxbatchError, held: Mapping[str, object], *, called: Sequence[str] = (), in_airflow: bool = False
) -> Advice:
    """Return the advice for an error. `held` has what the reader's side holds: topology, txid, job, state, key.

    Names that the error itself holds go first. If a name of the command is missing, the next command prints the page. To run
    the job again is to call again: `called` has the words of a call that ran the job. Airflow runs the job by itself.
    """
    page = read_pages().get(error.code, "")
    numbers, command = _NUMBERS.search(page), first_command(page)
    again = _RUN.fullmatch(command or "")
    if again and in_airflow:
        command = IN_AIRFLOW
    known = {**held, **error.about}.items()
    names = {name.upper(): str(value) for name, value in known if value is not None}
    words = None if command is None else fill(command, names)
    if again and called:
        words = ["txbatch", *([again[1]] if again[1] and again[1] not in called else []), *called]
    told = Advice(error.code, " ".join(numbers[1].split()) if numbers else "", None)
    if names_another(error.text, words):
        return told
    because = f"after {error.code}"
    following = shlex.join(because if word == _REASON else word for word in words) if words else told.more
    return replace(told, next=following)


def first_command(page: str) -> str | None:
    """Return the first command of a page's remedy; None for a page without a command."""
    found = _COMMAND.search(page)
    return found[1] if found else None


def fill(command: str, names: Mapping[str, str]) -> list[str] | None:
    """Return the words of a command with its names filled in; None if a name is missing.

    >>> fill("txbatch abort TOPOLOGY TXID", {"TOPOLOGY": "my sales", "TXID": "8"})
    ['txbatch', 'abort', 'my sales', '8']
    """
    words = shlex.split(command)
    if not {name for word in words for name in _NAME.findall(word)} <= names.keys():
        return None
    return [_NAME.sub(lambda name: names[name[0]], word) for word in words]


def names_another(text: str, words: list[str] | None) -> bool:
    """Return whether a text names a whole command, and none of these words.

    >>> names_another("restore it, or `txbatch abort sales 8 --why '...'`", ["txbatch", "doctor"])
    True
    >>> names_another("restore it, or `txbatch abort` the batch", ["txbatch", "doctor"])
    False
    """
    own = [_words(each) for each in named_commands(text)]
    return bool(own) and words not in own


def named_commands(text: str) -> list[str]:
    """Return the whole commands that a text names: with their arguments, and with nothing left to fill in."""
    return [each for each in _WHOLE.findall(text) if not _NAME.search(each)]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote is not closed
        return []
