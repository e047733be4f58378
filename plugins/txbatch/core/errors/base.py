"""The root of all errors, and the kinds of errors: no retry helps, try again, or the outcome is unknown (ask the ledger)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import ClassVar

from txbatch.core.text import LENGTH_MAX, one_line, safe_lines, text_of

# The last way on if the plan of a batch names a file that has changed since.
ABORT = "abort the batch (`txbatch abort TOPOLOGY TXID --why ...`) and run again: the next plan reads the file as it is"
# The ways on from a file that has changed since it was planned, and when which.
RESTORE = f"restore it, and the retry reads it; or, if the file is right now, {ABORT}"
# The ways on from a file that is gone since it was planned.
GONE = (
    "restore it, and the retry reads it; or, if it is gone for good, abort the batch (`txbatch abort TOPOLOGY TXID --why ...`) "
    "and run again: the next plan goes without it"
)
# The way on once a bad file is mended: the plan holds for the mended file, unless the length differs.
RUN_AGAIN = "run again; only if the length of a file has changed, abort the batch"
# The way on if a state rejects a record, which no quarantine takes.
REFUSED = (
    "filter such records out in the job, or let a function raise for them and quarantine them, or mend the source, then "
    f"{RUN_AGAIN}"
)
_CODED = re.compile(r"\bTX\d{3} \((?:no retry helps|try again|outcome unknown)\): ")


class TxbatchError(Exception):
    """Root of every error that txbatch raises on purpose.

    The text has the code of the situation and the kind, and names the thing, the reason and the next step.
    `txbatch explain CODE` prints the page of a code.

    The text is one printable line of bounded length, whatever names and records are in the text: an error goes to terminals,
    logs, the ledger and the UI. An error within an error shows the code of the outer error alone.
    """

    code: ClassVar[str] = "TX001"
    kind: ClassVar[str] = "no retry helps"
    by_code: ClassVar[dict[str, type[TxbatchError]]] = {}
    # True if the text ends with lines of a log.
    has_lines: ClassVar[bool] = False
    # What the error concerns: topology, txid, job. The command that comes next needs these names.
    about: Mapping[str, object] = MappingProxyType({})

    def __init_subclass__(cls, code: str | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code
            cls.by_code[code] = cls

    def __init__(self, text: object = "") -> None:
        bare, room = without_codes(text), LENGTH_MAX - len(f"{self.code} ({self.kind}): ")
        super().__init__(safe_lines(bare) if self.has_lines else one_line(bare, room))

    @property
    def text(self) -> str:
        """The text without code and kind."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"{self.code} ({self.kind}): {self.text}"

    def retold(self, text: object) -> TxbatchError:
        """Return an error of the same situation with another text."""
        return self.by_code[self.code](text)


class TerminalError(TxbatchError, code="TX001"):
    """No retry helps: something must be changed first. A job's own code may raise this error."""


class TransientError(TxbatchError, code="TX002"):
    """Try again: the same txid, with the same metadata. A job's own code may raise this error."""

    kind = "try again"


class OutcomeUnknown(TxbatchError, code="TX003"):
    """The answer to COMMIT was lost (R10). Try again, as after a TransientError: the next try finds out whether it happened."""

    kind = "outcome unknown"


class DefinitionError(TerminalError, code="TX100"):
    """A topology, a job file or a setting is wrong as written."""


@contextmanager
def concerning(**names: object) -> Iterator[None]:
    """Context manager. Add names to the errors of the block, such as `topology=` and `txid=`. An inner block goes first."""
    try:
        yield
    except TxbatchError as error:
        error.about = {**names, **error.about}
        raise


def without_codes(text: object) -> str:
    """Return the text of an error without codes and kinds.

    >>> without_codes("sales: TX402 (try again): txid 8 waits for txid 7")
    'sales: txid 8 waits for txid 7'
    """
    return _CODED.sub("", text_of(text))


def error_of(text: str, otherwise: type[TxbatchError]) -> TxbatchError:
    """Return the error of a text from another process or from the database: of the class of the text's code, or `otherwise`.

    >>> error_of("TX003 (outcome unknown): the answer to COMMIT was lost", TerminalError)
    OutcomeUnknown('the answer to COMMIT was lost')
    """
    coded = _CODED.match(text)
    return TxbatchError.by_code.get(text[:5] if coded else "", otherwise)(text)
