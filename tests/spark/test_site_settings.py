"""A site's Spark settings decide nothing: what changes a value is pinned, what cannot be pinned is refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from refusals import refused

from txbatch.core.errors import DefinitionError
from txbatch.spark import site_settings
from txbatch.spark.process.session import configured
from txbatch.spark.site_settings import Verdict

_ENTRY = re.compile(r"ConfigEntry\(key=(\S+), defaultValue=(.*?), doc=", re.DOTALL)


@pytest.fixture
def site(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, as a site would have set it; afterwards it is ours again."""
    yield spark
    configured(spark)


def _known(spark: SparkSession) -> Mapping[str, str]:
    """Return all settings of this Spark's SQL with their defaults, internal ones included."""
    jvm = spark._jvm
    assert jvm is not None
    entries = getattr(getattr(jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$").getConfigEntries()
    return dict(_ENTRY.findall(jvm.java.util.Arrays.toString(entries.toArray())))


def test_each_setting_of_this_spark_is_pinned_or_refused_or_changes_no_value(spark: SparkSession) -> None:
    known = _known(spark)
    assert len(known) > 800
    told = {setting.name for setting in site_settings.all_of_them()}
    unknown = sorted(known.keys() - told)
    assert not unknown, "say in plugins/txbatch/spark/site_settings.tsv what each of these does"


def test_what_is_pinned_is_what_this_spark_does_by_itself(spark: SparkSession) -> None:
    """A Spark whose defaults are others counts otherwise: whoever takes it up looks at each of them."""
    known = _known(spark)
    of_spark = [each for each in site_settings.all_of_them() if each.verdict is Verdict.PINNED and each.name in known]
    differ = {each.name: known[each.name] for each in of_spark if each.value != known[each.name].partition("<")[0]}
    assert not differ
    assert not [each.name for each in of_spark if not spark.conf.isModifiable(each.name)]


def test_a_time_that_is_none_is_refused_whatever_the_site_says(site: SparkSession) -> None:
    site.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    configured(site)
    with pytest.raises(Exception, match="CANNOT_PARSE_TIMESTAMP"):
        site.sql("SELECT to_date('2026-02-28 or later', 'yyyy-MM-dd')").collect()


# A setting, a value that it may have at a site, and what is another value then.
FACES = [
    (
        "decimalOperations.allowPrecisionLoss",
        "false",
        "typeof(CAST(1 AS decimal(38, 10)) * CAST(1 AS decimal(38, 10)))",
    ),
    ("parser.escapedStringLiterals", "true", r"length('a\tb')"),
    ("ansi.enabled", "false", "typeof(coalesce(1, '2'))"),
    ("session.timeZone", "Asia/Tokyo", "CAST(TIMESTAMP '2026-01-01 00:00:00Z' AS string)"),
    ("function.concatBinaryAsString", "true", "typeof(concat(X'01', X'02'))"),
    ("legacy.castComplexTypesToString.enabled", "true", "CAST(array(1, NULL) AS string)"),
    ("legacy.negativeIndexInArrayInsert", "true", "array_insert(array(1, 2, 3), -1, 9)"),
]


def test_no_setting_changes_an_expression(site: SparkSession) -> None:
    query = f"SELECT {', '.join(sql for _, _, sql in FACES)}"
    (before,) = site.sql(query).collect()
    for name, value, _ in FACES:
        site.conf.set(f"spark.sql.{name}", value)
    (otherwise,) = site.sql(query).collect()
    assert not [face for face, one, other in zip(FACES, before, otherwise, strict=True) if one == other]
    assert configured(site).sql(query).collect() == [before]


def test_a_field_is_found_whatever_its_case(site: SparkSession) -> None:
    site.conf.set("spark.sql.caseSensitive", "true")
    assert configured(site).sql("SELECT A FROM VALUES (1) AS t(a)").collect() == [(1,)]


@pytest.mark.parametrize(
    "name", ["spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.legacy.parquet.datetimeRebaseModeInRead"]
)
def test_an_old_date_in_parquet_is_the_day_that_it_says(site: SparkSession, tmp_path: Path, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"day": [date(1500, 1, 1)]}), tmp_path / "old.parquet")
    site.conf.set(name, "LEGACY")
    assert configured(site).read.parquet(str(tmp_path)).collect() == [(date(1500, 1, 1),)]


def test_a_long_line_is_read_whatever_the_site_says(site: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("short\n" + 100 * "long" + "\n")
    site.conf.set("mapreduce.input.linerecordreader.line.maxlength", "20")
    assert configured(site).read.text(str(tmp_path)).count() == 2


def test_what_does_not_count_is_told_once(site: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    site.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    site.conf.set("spark.sql.shuffle.partitions", site.conf.get("spark.sql.shuffle.partitions"))
    configured(site)
    configured(site)
    (line,) = capsys.readouterr().out.splitlines()
    assert line == (
        "txbatch: Spark's setting spark.sql.legacy.timeParserPolicy is LEGACY here and does not count: it can change what is "
        "counted, so it is CORRECTED"
    )


def test_what_cannot_be_pinned_is_refused_by_name() -> None:
    with pytest.raises(DefinitionError, match=r"spark\.sql\.extensions"):
        site_settings.check({"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension"})
    with pytest.raises(DefinitionError, match=r"mapreduce\.input\.pathFilter\.class"):
        site_settings.check({"spark.hadoop.mapreduce.input.pathFilter.class": "org.example.Some"})
    site_settings.check({"spark.sql.extensions": "", "spark.sql.catalogImplementation": "in-memory"})


def test_a_setting_that_only_a_newer_spark_has_is_refused(site: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: setting for name, setting in site_settings.by_name().items() if name != "spark.sql.caseSensitive"}
    monkeypatch.setattr(site_settings, "by_name", lambda: known)
    site.conf.set("spark.sql.caseSensitive", "false")
    with refused("TX807", "spark.sql.caseSensitive"):
        configured(site)
    site.conf.unset("spark.sql.caseSensitive")
    site.conf.set("spark.sql.catalog.lake.some", "a library's own")
    configured(site)
    site.conf.unset("spark.sql.catalog.lake.some")


def test_another_spark_is_told_each_value(site: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its defaults may be others."""
    monkeypatch.setattr(site_settings, "OF_SPARK", "4.2.0")
    configured(site)
    set_now = {name: site.conf.get(name) for name in ("spark.sql.mapKeyDedupPolicy", "spark.sql.legacy.sizeOfNull")}
    assert set_now == {"spark.sql.mapKeyDedupPolicy": "EXCEPTION", "spark.sql.legacy.sizeOfNull": "true"}
    for setting in site_settings.all_of_them():
        if setting.verdict is Verdict.PINNED:
            site.conf.unset(setting.name)
