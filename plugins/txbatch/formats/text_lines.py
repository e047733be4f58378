"""Lines of text files in Spark: Spark reads plain files, txbatch unpacks compressed files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.formats import contents
from txbatch.formats.listing import escaped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = f"line string, {PARTITION_COLUMN} string"


def read(spark: SparkSession, files: Sequence[Path], *, nul: bool = False) -> DataFrame:
    """Return the lines of all files, each with the file's URI. Raise like `contents.blocks`.

    Lines of plain files come unchecked from Spark: the reader refuses a line that is no text, and finds the line by `lines`.
    """
    packed = [file for file in files if not contents.splittable(file)]
    plain = sorted(set(files) - set(packed))
    for file in plain:
        contents.check_line_lengths(file)
    if not files:
        return spark.createDataFrame([], _COLUMNS)
    if not packed:
        return _plain(spark, plain)
    unpacked = _packed(spark, packed, nul)
    return _plain(spark, plain).union(unpacked) if plain else unpacked


def lines(file: Path, *, nul: bool = False) -> Iterator[str]:
    """Yield the lines of a file, read without Spark. BadRecord names the first line not in UTF-8, or, without `nul`, with
    U+0000.
    """
    for block in contents.blocks(file, carriage_returns=True):
        yield from _lines(block, nul)


def _plain(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    from pyspark.sql import functions as F

    # `_metadata.file_path` would bring all of `_metadata` into every scan, also of those who ask for the line alone
    lines = spark.read.text([escaped(file) for file in files])
    return lines.select(F.col("value").alias("line"), F.input_file_name().alias(PARTITION_COLUMN))


def _packed(spark: SparkSession, files: Sequence[Path], nul: bool) -> DataFrame:
    paths = spark.createDataFrame([(str(file),) for file in files], "path string").repartition(len(files), "path")
    return paths.mapInArrow(partial(_unpack, nul), _COLUMNS)


def _unpack(nul: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for row in batch.to_pylist():
            file = Path(row["path"])
            for block in contents.blocks(file, carriage_returns=True):
                lines = pa.array(_lines(block, nul), pa.string())
                uris = pa.repeat(file.as_uri(), len(lines))
                yield pa.record_batch([lines, uris], names=["line", PARTITION_COLUMN])


def _lines(block: contents.Block, nul: bool) -> list[str]:
    block.check_utf8()
    if not nul:
        block.check_no_nul()
    text = block.data.decode().replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n")
