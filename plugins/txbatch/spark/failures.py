"""Spark's errors in one line of txbatch's words, and whether another try can help."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

from py4j.protocol import Py4JNetworkError

from txbatch.core import errors
from txbatch.core.errors import (
    RUN_AGAIN,
    BadRecord,
    DamagedFile,
    DiskFull,
    FunctionFailed,
    InvalidExpression,
    OutOfRange,
    SparkFailed,
    TerminalError,
    TransientError,
    TxbatchError,
    WrongColumns,
    error_of,
)
from txbatch.core.records.functions import is_of_record
from txbatch.core.records.own_code import is_own
from txbatch.core.text import describe_record, text_of

_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_NOISE = re.compile(r"^\[[\w.]+\] | SQLSTATE: \w{5}.*$| If necessary set .*$| Use [`']?try_.*$")
# A file reader's complaint, two causes below what Spark says first.
_MISFIT = re.compile(
    r"Encountered error while reading file (?:file://)?(\S+?)\.\s.*?"
    r"(Malformed records are detected in record parsing[^\n]*|CSV header does not conform to the schema[^\n]*)",
    re.DOTALL,
)
_UNREAD = re.compile(r"Encountered error while reading file (?:file://)?(\S+)\.\s")
_CAUSE = re.compile(r"^Caused by: ([\w.$]+(?:: .*)?)$", re.MULTILINE)
# What unpacks and decodes raises these, of bytes that are none of theirs; a disk or a network that fails has other words.
_DAMAGED = re.compile(
    r"^(org\.apache\.parquet\.|com\.github\.luben\.zstd\.|org\.xerial\.snappy\.|io\.airlift\.|java\.util\.zip\.|"
    r"java\.lang\.(\w*IndexOutOfBounds|NegativeArraySize|IllegalArgument)Exception)|"
    r"CRC|checksum|corrupt|FAILED_TO_UNCOMPRESS|PARSING_ERROR"
)
# Spark leaves a hidden file of checksums beside each file that it writes to a disk, and compares: also what replaced the file.
_CHECKSUM = re.compile(r"org\.apache\.hadoop\.fs\.ChecksumException: Checksum error: file:")
_FULL = re.compile(
    r"(?:IOException|FileSystemException|FSError|OSError)[^\n]*?(No space left on device|Disk quota exceeded)"
)
# A path, whose words say nothing of what is wrong.
_PATH = re.compile(r"(?:[\w+.-]+:)?/\S*")
_OPERATION = re.compile(r"^txbatch operation (.*)$", re.MULTILINE)
_RECORD = re.compile(r"^txbatch record ([0-9a-f]*): ?(.*)$", re.MULTILINE)
# Of what is said of a record, where it is; what follows has its values.
_PLACE = re.compile(
    r"^.*?(?:, line [\d,]*\d(?:, field (?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))?|, partition \d+, offset \d+)|"
    r"^[^:]*?(?=, [^,:=]+=)|"  # a row of a table: its key is a value
    r"^.*?(?=: .*\(22[0-9A-Z]{3}\))",  # a server's line on a value
    re.DOTALL,
)
_PATH_NOT_FOUND = "42K03"
_OUT_OF_RANGE = ("22003", "22008")


class Unshown(Exception):
    """A function's error without the text: the text may have values of the record."""


def in_our_words(error: Exception, *, show: bool = True) -> TxbatchError:
    """Return Spark's error as an error of txbatch; without `show`, a BadRecord has the place and the fault, and no value.

    A value that cannot be computed (SQLSTATE class 22, or raise_error) is a BadRecord, an expression without meaning (class
    42) a DefinitionError, an exception of a Python function FunctionFailed, all else SparkFailed.
    """
    if isinstance(error, TxbatchError):
        return error if show else _unshown(error)
    said = text_of(error)
    if misfit := _MISFIT.search(said):
        return (WrongColumns if "header" in misfit[2] else BadRecord)(
            f"{unquote(misfit[1])}: {misfit[2].rstrip('. ') if show else 'malformed records, or another header'}"
        )
    if full := _FULL.search(said):
        return DiskFull(
            f"a disk is full ({full[1]}): {_line(error)}; make room where TXBATCH_STAGING is, or where Spark keeps its own files "
            "(SPARK_LOCAL_DIRS, spark.local.dir), then try again"
        )
    if damaged := _damaged(said):
        return damaged
    state = str(getattr(error, "getSqlState", lambda: None)() or "")
    if state == "38000":
        problem = _function_failed(said)
        return problem if show else _unshown(problem)
    if state.startswith(("22", "P0001")):
        kind = OutOfRange if state in _OUT_OF_RANGE else BadRecord
        if show:
            return error_of(_line(error), kind)
        return kind(f"{_condition(error)} in an expression of the job")
    if state.startswith("42") and state != _PATH_NOT_FOUND:
        return InvalidExpression(f"{_line(error)}; mend the expression in the job")
    return SparkFailed(_line(error))


def failed_expression(error: Exception) -> str:
    """Return the part of an SQL expression that could not be computed, in Spark's words; "" for any other failure."""
    if not isinstance(in_our_words(error), BadRecord):
        return ""
    contexts: Any = getattr(error, "getQueryContext", tuple)()
    return next((str(each.fragment()) for each in contexts if each.contextType().name == "SQL"), "")


def _unshown(error: TxbatchError) -> TxbatchError:
    """Return an error with the text only up to the record's place."""
    place = _PLACE.match(error.text)
    if not isinstance(error, BadRecord) or place is None:
        return error
    return TxbatchError.by_code[error.code](f"{place[0]} is not as declared; look there")


def _condition(error: Exception) -> str:
    return str(getattr(error, "getCondition", str)() or "a value that cannot be computed")


def _damaged(message: str) -> BadRecord | None:
    """Return the error for a file opened by Spark with damaged contents; None for any other failure."""
    file = _UNREAD.search(message)
    if file is None:
        return None
    path = unquote(file[1])
    if any(map(_CHECKSUM.match, _CAUSE.findall(message))):
        return _other_checksum(Path(path))
    causes = [cause for cause in _CAUSE.findall(message) if _DAMAGED.search(_PATH.sub("", cause.replace(path, "")))]
    if not causes:
        return None
    name, _, text = causes[-1].partition(": ")
    return DamagedFile(f"{path} cannot be read ({text or name.rpartition('.')[2]}); write it again")


def _other_checksum(path: Path) -> DamagedFile:
    return DamagedFile(
        f"{path} is not what its checksum file {path.parent / f'.{path.name}.crc'} has; if the file was replaced, remove the "
        f"checksum file, else write the file again, then {RUN_AGAIN}"
    )


def java_is_gone(error: BaseException | None) -> bool:
    """Return whether an error, or a cause of the error, comes from Spark's Java process no longer answering."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, Py4JNetworkError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _line(error: Exception) -> str:
    """Return the first line with text."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() or java.toString()) if java is not None else text_of(error)
    first = next((line for line in text.splitlines() if line.strip()), "")
    name = "" if java is not None or hasattr(error, "getSqlState") else f"{type(error).__name__}: "
    return name + _NOISE.sub("", first.strip()).rstrip(".")


def _function_failed(message: str) -> TxbatchError:
    """Return the error from a worker's traceback: the operation, the exception, the last line of the job's own code, and the
    record.
    """
    frames = list(_FRAME.finditer(message))
    after = message[frames[-1].end() :] if frames else message
    raised = next((line for line in after.splitlines() if line[:1].strip()), "an exception")
    name, _, text = raised.partition(": ")
    ours = getattr(errors, name.rpartition(".")[2], None) if name.startswith(errors.__name__) else None
    if isinstance(ours, type) and issubclass(ours, TerminalError | TransientError):
        return ours(text)
    if name.rpartition(".")[2] == Unshown.__name__:
        raised = text
    files = _own_files()
    own = [frame.groups() for frame in frames if frame[1] in files]
    where = f" ({Path(own[-1][0]).name}, line {own[-1][1]}, in {own[-1][2]})" if own else ""
    operation, record = _OPERATION.search(message), _RECORD.search(message)
    shown = f", for the record {record[2]}" if record and record[2] else ""
    called = operation[1] if operation else "a function"
    return FunctionFailed.of(f"{called} raised {raised}{where}{shown}", record[1] if record else "")


def _own_files() -> set[str]:
    """Return the files of the job's own code: a function failing on an executor names the files, even if the executor lacks
    them.
    """
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {file for name, file in files.items() if file and is_own(name, file)}


def raise_for(error: Exception, record: Mapping[str, Any], of: str, *, show: bool) -> NoReturn:
    """Raise the error of a user's function for a record on the executor, with notes on both for the driver.

    `of` names the function. Without `show` neither the record nor the exception's text goes to the driver, or into a log.
    """
    hidden = not show and not isinstance(error, TxbatchError)
    raised = Unshown(type(error).__name__).with_traceback(error.__traceback__) if hidden else error
    raised.add_note(f"txbatch operation {of}")
    raised.add_note(_record_note(error, record, show=show))
    if hidden:
        raise raised from None
    raise raised


def _record_note(error: Exception, record: Mapping[str, Any], *, show: bool) -> str:
    """Return the record's digest, unless a disk, a network or memory may be at fault, and the record if `show` is true."""
    digest = hashlib.sha256(repr(record).encode(errors="surrogatepass")).hexdigest() if is_of_record(error) else ""
    return f"txbatch record {digest}: {describe_record(record) if show else ''}"
