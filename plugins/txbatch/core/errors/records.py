"""Errors in sources, files (TX2..) and records (TX3..)."""

from txbatch.core.errors.base import DefinitionError, TerminalError, TransientError
from txbatch.core.errors.batches import Incomplete


class PartitionUnreadable(TransientError, code="TX201"):
    """A partition cannot be read now (R12, R13). A reader raises this error to declare an outage."""


class SourceMissing(TransientError, code="TX202"):
    """The folder or the files of a source do not exist."""


class SourceNotReady(TransientError, code="TX203"):
    """The source does not have the records of the batch yet."""


class SourceChanged(TransientError, code="TX204"):
    """The source has changed: a file since the batch was planned, or records while the batch was read."""


class RecordsGone(TerminalError, code="TX205"):
    """The source no longer has records that come next: you decide, nothing skips the records silently."""


class SourceCutBack(TerminalError, code="TX206"):
    """A partition ends before the offset that comes next: the source was cut off or created again."""


class AmbiguousFiles(TransientError, code="TX207"):
    """Links or names of files would make Spark read a file twice, not at all, or from outside the source."""


class InvalidOption(DefinitionError, code="TX208"):
    """An option of a spout, or the place of its files, is wrong as written."""


class SpoutFailed(TransientError, code="TX209"):
    """A spout of the job raised an error."""


class BrokenSpout(Incomplete, code="TX210"):
    """A spout gave records that do not belong to the batch."""


class SourceUnfit(DefinitionError, code="TX220"):
    """A table cannot be read without loss: a column, an index, a guard or a right is missing, or a type does not fit."""


class OtherHistory(TerminalError, code="TX221"):
    """A table is on another server, or on a server with another history, than the rows that were counted."""


class SourceBehind(TransientError, code="TX222"):
    """A server lacks transactions that were counted: the server lags, or was restored."""


class RowsDiffer(TerminalError, code="TX223"):
    """A table has other rows of a counted transaction than before: rows were lost or changed."""


class SourceAway(PartitionUnreadable, code="TX224"):
    """The server of a source does not answer. A task of Airflow waits for the source."""


class BadRecord(TerminalError, code="TX301"):
    """A record is not as the job declares records."""


class DamagedFile(BadRecord, code="TX302"):
    """A file cannot be unpacked or read to its end."""


class WrongColumns(BadRecord, code="TX303"):
    """The columns of a file are not the declared fields."""


class BadText(BadRecord, code="TX304"):
    """Text is not UTF-8, or holds U+0000."""


class OutOfRange(BadRecord, code="TX305"):
    """A value or a total is out of range for its type."""


class BadKey(BadRecord, code="TX306"):
    """A state rejects a key: the key is null, or two rows have one key."""


class BadFunction(BadRecord, code="TX307"):
    """A function of the job failed for a record; the text shows no value that must stay hidden."""


class BadResult(BadRecord, code="TX308"):
    """A function of the job returned a value that is not of the declared type."""


class QuarantineFull(TerminalError, code="TX309"):
    """Functions failed for more records of a batch than the topology's quarantine takes."""
