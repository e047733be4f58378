"""The golden files through the spout in Spark: the rows that tests/files/ finds without it, and the same reasons."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from file_cases import Case, cases, told
from pyspark.sql import SparkSession
from refusals import check_refusal

from txbatch import IntervalSpout
from txbatch.core.batch.transaction import TransactionAttempt
from txbatch.core.records.fields import parse_fields
from txbatch.core.records.sql import spark_name
from txbatch.spark.failures import in_our_words

ALL = ["1971-01-01T00:00:00+00:00", "2100-01-01T00:00:00+00:00"]
FORMATS = ("csv", "json", "parquet")
Group = tuple[str, str, str]


# Options by which files of one source may differ.
VARIED = frozenset({"optional", "extra", "numbers_as_text", "folders", "folder_time"})


def groups(format_: str) -> dict[Group, list[Case]]:
    """Cases that are read, by what one spout can read together: the largest groups, and those whose files may differ."""
    found: dict[Group, list[Case]] = {}
    for case in cases(format_):
        if case.rows is not None:
            key = (case.format, case.fields, json.dumps(case.options, sort_keys=True))
            found.setdefault(key, []).append(case)
    largest = sorted(found.items(), key=lambda group: -len(group[1]))[:6]
    return dict([*largest, *((key, cases_) for key, cases_ in found.items() if VARIED & json.loads(key[2]).keys())])


GOOD = {group: together for format_ in FORMATS for group, together in groups(format_).items()}
BAD = [case for format_ in FORMATS for case in [case for case in cases(format_) if case.code][5::40]]
BAD += [case for format_ in FORMATS for case in cases(format_) if case.code and VARIED & case.options.keys()][::4]


def read(spark: SparkSession, root: Path, case: Case) -> list[list[Any]]:
    time = parse_fields(case.fields)[0].name
    spout = IntervalSpout(root, case.fields, time=time, format=case.format, options=dict(case.options))
    plan = spout.initialize_transaction(1, None, {"interval": ALL})
    assert plan is not None
    records = spout.emit_batch(spark, TransactionAttempt(1, 1), plan)
    names = [field.name for field in parse_fields(case.fields)]
    try:
        return [
            [told(value) for value in row] for row in records.select([spark_name(name) for name in names]).collect()
        ]
    finally:
        records.unpersist()


def copied(case: Case, folder: Path, before: str = "") -> None:
    """Put a case's file into a folder, below the folders that the case names."""
    target = folder / case.file
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(case.path, target.with_name(before + target.name))


def in_order(rows: Any) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("group", GOOD, ids=lambda group: " ".join(group))
def test_good_files_are_read_in_spark_as_without_it(spark: SparkSession, group: Group, tmp_path: Path) -> None:
    together = GOOD[group]
    for number, case in enumerate(together):
        copied(case, tmp_path, f"{number}-")
    expected = [list(row) for case in together for row in case.rows or []]
    assert in_order(read(spark, tmp_path, together[0])) == in_order(expected)


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_bad_file_is_refused_in_spark_for_the_same_reason(spark: SparkSession, case: Case, tmp_path: Path) -> None:
    copied(case, tmp_path)
    with pytest.raises(Exception) as failed:  # noqa: PT011 (Spark's own, which one of ours stands for)
        read(spark, tmp_path, case)
    problem = in_our_words(failed.value)
    check_refusal(problem, str(case.code), *case.names)
