"""The contents of text files, unpacked if compressed, in blocks of whole lines: memory stays bounded.

A file's first bytes decide the type, and the name must agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

from txbatch.core.errors import (
    GONE,
    RESTORE,
    RUN_AGAIN,
    BadRecord,
    BadText,
    DamagedFile,
    PartitionUnreadable,
    SourceChanged,
    SourceNotReady,
)

RECORD_BYTES_MAX = 64_000_000
CHUNK_BYTES = 4_000_000
NEWLINE = b"\n"
MARK = b"\xef\xbb\xbf"
# What is unpacked: Arrow's name of it, by the names of files.
SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4"}
UNREADABLE_SUFFIXES = frozenset(
    {".7z", ".br", ".deflate", ".lzma", ".lzo", ".rar", ".snappy", ".sz", ".tar", ".tgz", ".xz", ".z", ".zip", ".zz"}
)
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
_UNREADABLE_MAGIC = {
    b"\x1f\x9d": "compress (.Z)",
    b"\x02\x21\x4c\x18": "lz4 of the old kind",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"\xfd7zXZ\x00": "xz",
    b"\xff\x06\x00\x00sNaPpY": "snappy",
    b"\x89LZO\x00": "lzo",
    b"PK\x03\x04": "zip",
    b"Rar!\x1a\x07": "rar",
}
_BZ2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # what follows the four bytes at the beginning
_WAYS = "write plain text, or gzip, bzip2, zstd or lz4 under a name that says so (.gz, .bz2, .zst, .lz4)"


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file, in the written form, line ends included; a mark of byte order at the beginning is left out.

    `offset` is the start of the lines in the unpacked contents. `first_line` is the number of the first line, from 1, or None
    if reading began within the file.
    """

    path: Path
    data: bytes
    offset: int
    first_line: int | None

    def place(self, at: int) -> str:
        """Return the file and line of a byte of `data`, for messages; the position if the line is unknown."""
        if self.first_line is None:
            return f"{self.path} at byte {self.offset + at:,}"
        return f"{self.path} line {self.first_line + self.data.count(NEWLINE, 0, at)}"

    def check_no_nul(self) -> None:
        """Refuse U+0000, frequent in UTF-16 without a mark: BadRecord names the line."""
        if (at := self.data.find(b"\0")) >= 0:
            raise BadText(
                f"{self.place(at)} holds U+0000, as UTF-16 does; write the file as UTF-8, or say nul=True of its spout if lines "
                "may hold U+0000"
            )

    def check_utf8(self) -> None:
        """Refuse bytes that are no UTF-8: BadRecord names the line."""
        try:
            self.data.decode()
        except UnicodeDecodeError as error:
            raise BadText(
                f"{self.place(error.start)}: the byte 0x{self.data[error.start]:02x} is not UTF-8; write the file as UTF-8"
            ) from None


def blocks(
    path: Path,
    start: int = 0,
    end: int | None = None,
    *,
    planned: int | None = None,
    record_bytes_max: int = RECORD_BYTES_MAX,
    carriage_returns: bool = False,
) -> Iterator[Block]:
    """Yield the lines that begin at `start` or later, and before `end`. A compressed file has a single range: all lines.

    A line ends with \\n, with `carriage_returns` also with a \\r without a following \\n. A file grown beyond the `planned`
    size is read up to the end of the line begun before the planned size.

    BadRecord names a file with a wrong name, a file that cannot be unpacked, or a file with a line of more than
    `record_bytes_max` bytes; TransientError a file unlike the plan; PartitionUnreadable an unreadable file.
    """
    try:
        with path.open("rb", buffering=0) as file:
            codec = compression(path, file.read(16))
            grown = check_planned(path, file, planned, codec)
            if codec is None:
                file.seek(max(start - 1, 0))
                stream: BinaryIO | _Unpacked = file
                end = planned if end is None else end
            else:
                start, end, stream = 0, None, _Unpacked(path, file, codec)
            least = end if codec is None and planned is not None and end is not None else 0
            yield from _Cutter(path, stream, start, end, record_bytes_max, carriage_returns).blocks(least, grown=grown)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> PartitionUnreadable:
    """Return the error for a file that cannot be opened or read. A file that is gone has ways out of its own."""
    way = f"; {GONE}" if isinstance(error, FileNotFoundError) else ""
    return PartitionUnreadable(f"{path} cannot be read: {error.strerror or error}{way}")


def splittable(path: Path) -> bool:
    """Return whether ranges of the file can be read alone: the file is not compressed. Raise like `blocks`."""
    try:
        with path.open("rb", buffering=0) as file:
            return compression(path, file.read(16)) is None
    except OSError as error:
        raise unreadable(path, error) from error


def check_line_lengths(path: Path, record_bytes_max: int = RECORD_BYTES_MAX) -> None:
    """Refuse a plain file with a line longer than `record_bytes_max`, without reading the whole file: BadRecord."""
    if path.stat().st_size <= record_bytes_max:
        return
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        begin = 0
        while len(data) - begin > record_bytes_max:
            end = 1 + max(data.rfind(mark, begin, begin + record_bytes_max) for mark in (NEWLINE, b"\r"))
            if end == 0:
                raise _too_long(path, begin, record_bytes_max)
            begin = end


def compression(path: Path, beginning: bytes) -> str | None:
    """Return a file's codec, by the first bytes. Raise BadRecord if the name disagrees, or the file cannot be unpacked."""
    said, found = SUFFIXES.get(path.suffix.lower()), _magic(beginning)
    other = next((name for magic, name in _UNREADABLE_MAGIC.items() if beginning.startswith(magic)), None)
    if other or path.suffix.lower() in UNREADABLE_SUFFIXES:
        raise DamagedFile(f"{path} is {other or path.suffix}, which is not unpacked; {_WAYS}")
    if said == found or (found == "skippable" and said in ("zstd", "lz4")):
        return said
    if found is None:
        what = "is empty" if not beginning else f"begins with {beginning[:4].hex(' ')}, and that is no {said}"
        raise DamagedFile(f"{path} {what}; write it whole, or {_WAYS}")
    raise DamagedFile(f"{path} is compressed ({found}), which its name does not say; {_WAYS}")


def check_planned(path: Path, file: BinaryIO, planned: int | None, codec: str | None) -> bool:
    """Return whether a plain file has grown since the planning. Raise TransientError if the file shrank, or is compressed and
    changed.
    """
    size = file.seek(0, 2)
    if planned is None or size == planned:
        return False
    if codec is None and size > planned:
        return True
    raise SourceChanged(
        f"{path} had {planned:,} bytes when it was planned, now {size:,}; {RESTORE}. "
        "Write files under a name that begins with '_' and rename them when whole"
    )


def _magic(beginning: bytes) -> str | None:
    if beginning[1:4] == b"\x2a\x4d\x18" and 0x50 <= beginning[0] <= 0x5F:
        return "skippable"
    found = next((name for magic, name in _MAGIC.items() if beginning.startswith(magic)), None)
    return None if found == "bz2" and not beginning[4:].startswith(_BZ2_BLOCKS) else found


def _too_long(path: Path, offset: int, most: int) -> BadRecord:
    return BadRecord(
        f"{path}: the line at byte {offset:,} has more than {most:,} bytes; end lines, or mend the file, then {RUN_AGAIN}"
    )


class _Unpacked:
    """A compressed file with all members, unpacked piece by piece."""

    def __init__(self, path: Path, file: BinaryIO, codec: str) -> None:
        import pyarrow as pa

        file.seek(0)
        self.path, self.codec, self.errors = path, codec, (OSError, pa.ArrowException)
        self.stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), codec)

    def read(self, size: int) -> bytes:
        try:
            return bytes(self.stream.read(size))
        except self.errors as error:
            if getattr(error, "errno", None):
                raise
            raise DamagedFile(
                f"{self.path} cannot be unpacked ({self.codec}): {error}; write it again, whole, then {RUN_AGAIN}"
            ) from error


class _Cutter:
    """Cuts a stream into blocks of whole lines. If `start` is not 0, the stream stands a byte before `start`."""

    def __init__(
        self, path: Path, stream: BinaryIO | _Unpacked, start: int, end: int | None, most: int, returns: bool
    ) -> None:
        self.path, self.stream, self.start, self.end, self.most, self.returns = path, stream, start, end, most, returns

    def blocks(self, least: int = 0, *, grown: bool = False) -> Iterator[Block]:
        """Yield all blocks, of at least `least` bytes together. In a grown file, a line without an end is still being
        written.
        """
        data, offset = self._beginning()
        line = None if self.start else 1
        while self.end is None or offset < self.end:
            more = self._read()
            data += more
            cut = self._cut(data, offset, whole=not more)
            if (self._line_end(data, 0) if cut else len(data)) > self.most:
                raise _too_long(self.path, offset, self.most)
            if not more and offset + len(data) < least:
                raise SourceChanged(
                    f"{self.path} was cut off at byte {offset + len(data):,} while it was read; restore it"
                )
            if grown and not more and not data.endswith((NEWLINE, b"\r")):
                raise SourceNotReady(f"{self.path}: its last line is still being written; try again")
            if cut:
                yield Block(self.path, data[:cut], offset, line)
            if not more:
                return
            line = None if line is None else line + data.count(NEWLINE, 0, cut)
            data, offset = data[cut:], offset + cut

    def _beginning(self) -> tuple[bytes, int]:
        """Return the data behind the byte order mark, or behind the line begun before `start`, with the data's offset."""
        data, offset = self._read(), max(self.start - 1, 0)
        if self.start == 0:
            mark = len(MARK) if data.startswith(MARK) else 0
            self.end = max(self.end, mark + 1) if mark and self.end else self.end
            return data[mark:], mark
        while data and (ends := self._line_end(data, 0)) < 0:
            more = self._read()
            if not more:
                return b"", offset + len(data)
            data, offset = data[-1:] + more, offset + len(data) - 1
        return data[ends:] if data else b"", offset + (ends if data else 0)

    def _read(self) -> bytes:
        return self.stream.read(max(1, min(CHUNK_BYTES, self.most // 2))) or b""

    def _cut(self, data: bytes, offset: int, *, whole: bool) -> int:
        """Return the end of the last line present; the end of the last line begun before `end`, once present."""
        if self.end is not None and offset + len(data) >= self.end:
            within = self._line_end(data, self.end - 1 - offset)
            if within >= 0:
                return within
        return len(data) if whole else self._last_line_end(data)

    def _line_end(self, data: bytes, at: int) -> int:
        """Return the end of the line around the byte `at`; -1 if the end is not yet in sight."""
        newline = data.find(NEWLINE, at)
        if self.returns:
            before = data.find(b"\r", at, newline if newline >= 0 else len(data))
            if 0 <= before < len(data) - 1:
                return before + (2 if before + 1 == newline else 1)
        return newline + 1 or -1

    def _last_line_end(self, data: bytes) -> int:
        newline = data.rfind(NEWLINE)
        return 1 + (max(newline, data.rfind(b"\r", 0, len(data) - 1)) if self.returns else newline)
