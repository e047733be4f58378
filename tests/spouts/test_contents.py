"""The contents of text files: what is compressed is unpacked, what is damaged is refused, memory stays bounded."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import tracemalloc
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from refusals import refused

from txbatch.core.errors import BadRecord, PartitionUnreadable, TransientError
from txbatch.formats import contents
from txbatch.formats.contents import blocks, splittable

LINES = b"".join(b"line %d\n" % number for number in range(20_000))


def arrow(codec: str) -> Callable[[bytes], bytes]:
    def pack(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return bytes(sink.getvalue())

    return pack


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": arrow("zstd"),
    ".LZ4": arrow("lz4"),
}


def write(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def whole(path: Path, **options: Any) -> bytes:
    return b"".join(block.data for block in blocks(path, **options))


@pytest.mark.parametrize("suffix", PACK)
def test_a_compressed_file_is_unpacked_all_members_of_it(tmp_path: Path, suffix: str) -> None:
    pack = PACK[suffix]
    one = write(tmp_path, "one" + suffix, pack(LINES))
    assert (whole(one), splittable(one), splittable(write(tmp_path, "plain", LINES))) == (LINES, False, True)
    assert whole(write(tmp_path, "two" + suffix, pack(LINES[:999]) + pack(LINES[999:]))) == LINES
    assert whole(write(tmp_path, "nothing" + suffix, pack(b""))) == b""
    assert whole(write(tmp_path, "marked" + suffix, pack(contents.MARK + LINES))) == LINES


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize(
    "damage",
    [
        lambda packed: packed[:-1],
        lambda packed: packed[: len(packed) // 2],
        lambda packed: packed[:11],
        lambda packed: packed + b"x",
        lambda packed: packed + b"garbage",
        lambda packed: packed + bytes(512),
        lambda packed: packed + packed[:-3],
    ],
)
def test_a_damaged_archive_is_refused_by_name(tmp_path: Path, suffix: str, damage: Callable[[bytes], bytes]) -> None:
    path = write(tmp_path, "a" + suffix, damage(PACK[suffix](LINES)))
    with pytest.raises(
        BadRecord,
        match=rf"a{re.escape(suffix)} cannot be unpacked .*; write it again, whole, then run again; only if",
    ):
        whole(path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_other_bytes_in_the_middle_are_found_by_the_checksum(tmp_path: Path, suffix: str) -> None:
    packed = PACK[suffix](LINES)
    half = len(packed) // 2
    with pytest.raises(BadRecord, match="cannot be unpacked"):
        whole(write(tmp_path, "a" + suffix, packed[:half] + b"\x55\xaa\x55" + packed[half + 3 :]))


@pytest.mark.parametrize("suffix", [*PACK, ".gzip", ".bz2", ".zstd"])
@pytest.mark.parametrize("content", [b"", b"1\n2\n", LINES, b"\x1f", b"BZh9 is text\n", zlib.compress(LINES)])
def test_what_is_not_what_its_name_says(tmp_path: Path, suffix: str, content: bytes) -> None:
    with pytest.raises(BadRecord, match=rf"a{suffix} (is empty|begins with)"):
        whole(write(tmp_path, "a" + suffix, content))


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("name", ["a.txt", "a", "a.csv", "a.gz.part"])
def test_what_is_compressed_under_another_name(tmp_path: Path, suffix: str, name: str) -> None:
    with pytest.raises(
        BadRecord, match=rf"{name} is compressed \(\w+\), which its name does not say; write plain text"
    ):
        whole(write(tmp_path, name, PACK[suffix](LINES)))
    other = ".gz" if suffix != ".gz" else ".bz2"
    with refused("TX302", "is compressed"):
        whole(write(tmp_path, name + other, PACK[suffix](LINES)))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.snappy", LINES),
        ("a.deflate", zlib.compress(LINES)),
        ("a.xz", lzma.compress(LINES)),
        ("a.txt", lzma.compress(LINES)),
        ("a.lz4", b"\x02\x21\x4c\x18" + bytes(9)),
        ("a.csv", b"PK\x03\x04" + bytes(9)),
        ("a.ZIP", b"PK\x03\x04" + bytes(9)),
        ("a.Z", b"\x1f\x9d\x90"),
        ("a.lzo", b"\x89LZO\x00"),
    ],
)
def test_what_cannot_be_unpacked_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(BadRecord, match=rf"{name} is .*, which is not unpacked; write plain text, or gzip"):
        whole(write(tmp_path, name, content))


def test_a_bomb_is_unpacked_in_bounded_memory(tmp_path: Path) -> None:
    path = write(tmp_path, "a.gz", gzip.compress(bytes(40_000_000)))
    pool, before = pa.default_memory_pool(), pa.default_memory_pool().bytes_allocated()
    tracemalloc.start()
    with refused("TX301", "a.gz", "byte 0", "5,000,000"):
        whole(path, record_bytes_max=5_000_000)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    assert pool.bytes_allocated() - before < 20_000_000
    tracemalloc.stop()


def test_a_line_that_is_too_long_is_named_by_its_offset(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"short\n" + b"x" * 1_000 + b"\nshort\n")
    assert whole(path, record_bytes_max=1_001)
    for most in (1_000, 999, 100, 7):
        with pytest.raises(BadRecord, match=rf"a.txt: the line at byte 6 has more than {most:,} bytes"):
            whole(path, record_bytes_max=most)


@pytest.mark.parametrize("returns", [False, True])
def test_however_it_is_cut_every_line_comes_once(
    tmp_path: Path, returns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(10)
    ends = rb"\r\n|\n|\r" if returns else rb"\n"
    for _ in range(300):
        text = b"".join(random.choices([b"a", b"bc", b"\n", b"\r\n", b"\r"], k=random.randrange(30)))
        path = write(tmp_path, "a.txt", random.choice([b"", contents.MARK]) + text)
        monkeypatch.setattr(contents, "CHUNK_BYTES", random.randrange(3, 9))
        size = path.stat().st_size
        cuts = sorted({0, size, *random.choices(range(size + 1), k=random.randrange(4))})
        found = [
            (start, end, list(blocks(path, start, end, carriage_returns=returns))) for start, end in pairwise(cuts)
        ]
        assert b"".join(block.data for _, _, each in found for block in each) == text
        for start, end, each in found:
            for block in each:
                assert path.read_bytes()[block.offset :].startswith(block.data)
                begins = [block.offset + match.end() for match in re.finditer(ends, block.data)]
                assert start <= block.offset < max(end, 4)
                assert all(at < max(end, 4) or at == block.offset + len(block.data) for at in begins)
                assert begins[-1:] == [block.offset + len(block.data)] or block.offset + len(block.data) == size


def test_the_lines_are_numbered_where_reading_began_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "CHUNK_BYTES", 100)
    path = write(tmp_path, "a.txt", LINES[:1_000] + b"caf\xe9\n")
    number = LINES[:1_000].count(b"\n") + 1
    for block in blocks(path):
        if b"\xe9" in block.data:
            with pytest.raises(
                BadRecord, match=rf"a.txt line {number}: the byte 0xe9 is not UTF-8; write the file as UTF-8"
            ):
                block.check_utf8()
            break
        block.check_utf8()
    *_, last = blocks(path, 500)
    with refused("TX304", "a.txt", "byte 1,003"):
        last.check_utf8()


def test_a_file_that_is_cut_off_while_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(LINES * 40)  # more than a block
    size = file.stat().st_size
    reading = blocks(file, planned=size)
    read = len(next(reading).data)
    os.truncate(file, read + 100)
    with pytest.raises(TransientError, match=r"was cut off at byte .* while it was read"):
        list(reading)


def test_a_file_that_grew_is_read_to_its_planned_end(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"one\ntwo\nthree\n")
    assert whole(path, planned=8) == b"one\ntwo\n"
    assert whole(path, planned=6) == b"one\ntwo\n", "the line that was being written"
    path.write_bytes(b"one\ntwo\nthr")
    with refused("TX203", "a.txt"):
        whole(path, planned=9)


def test_a_file_that_shrank_or_is_gone(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"one\n")
    with refused("TX204", "a.txt", "5", "planned", "4"):
        whole(path, planned=5)
    packed = write(tmp_path, "a.gz", gzip.compress(LINES))
    with refused("TX204", "a.gz", "5", "planned"):
        whole(packed, planned=5)
    with pytest.raises(PartitionUnreadable, match="gone cannot be read: No such file"):
        whole(tmp_path / "gone")
    with pytest.raises(PartitionUnreadable, match="cannot be read: Is a directory"):
        whole(tmp_path)
