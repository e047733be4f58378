"""A site's settings of Spark's SQL, in whatever place: no setting that changes a value counts.

`site_settings.tsv` has a verdict on each setting of the tested Spark. A setting not known to leave values alone is pinned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import UnsafeSparkSetting
from txbatch.core.text import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The Spark that the list is of: its defaults are what is pinned.
OF_SPARK = "4.3.0"
_SQL = "spark.sql."
_HADOOP = "spark.hadoop."
_VALUE_MAX = 100
_END = "\x01"


class Verdict(StrEnum):
    """The verdict on a setting: `set` by txbatch, or `pinned` to Spark's default; `refused`; or `free`: the setting changes
    no value.
    """

    SET = "set"
    PINNED = "pinned"
    REFUSED = "refused"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of Spark. `value` is the value to have; empty: none."""

    verdict: Verdict
    name: str
    value: str


def all_of_them() -> Sequence[Setting]:
    """Return the whole list."""
    lines = files("txbatch.spark").joinpath("site_settings.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines)
    return [Setting(Verdict(verdict), name, value) for verdict, name, value in rows]


@cache
def by_name() -> Mapping[str, Setting]:
    """Return the list by names."""
    return {setting.name: setting for setting in all_of_them()}


def check(given: Mapping[str, Any]) -> None:
    """Raise DefinitionError with a setting that changes counted values and cannot be changed once Spark runs."""
    for name, value in given.items():
        setting = by_name().get(name.removeprefix(_HADOOP))
        if setting is not None and setting.verdict is Verdict.REFUSED and str(value) != setting.value:
            raise UnsafeSparkSetting(
                f"Spark's setting {name} is {one_line(value, _VALUE_MAX)} here: it can change what is counted, and cannot be "
                f"pinned once Spark runs; leave it out of Spark's configuration, or let emit_batch={{'conf': ...}} set it to "
                f"{setting.value or 'nothing'}"
            )


def pin(spark: SparkSession) -> None:
    """Let the session count like the tested Spark, whatever the site sets; print the site's settings that do not count.

    Raise DefinitionError like `check`, and for a setting of Spark's SQL missing in the list.
    """
    given, as_tested = _given(spark), spark.version == OF_SPARK
    check(given)
    _check_known(spark, given)
    for setting in by_name().values():
        if setting.verdict in (Verdict.SET, Verdict.PINNED):
            found = given.get(setting.name, given.get(_HADOOP + setting.name))
            _pin(spark, setting, found, by_default=as_tested and setting.verdict is Verdict.PINNED)


def _pin(spark: SparkSession, setting: Setting, found: str | None, *, by_default: bool) -> None:
    """Pin a setting that Spark may have by default."""
    if found == (setting.value or None) or (found is None and by_default):
        return
    if found is not None and found.casefold() != setting.value.casefold():
        _tell(setting, found)
    if by_default or not setting.value:
        spark.conf.unset(setting.name)
    else:
        spark.conf.set(setting.name, setting.value)


def _tell(setting: Setting, found: str) -> None:
    value = setting.value or "what Spark has without settings"
    print(
        f"txbatch: Spark's setting {setting.name} is {one_line(found, _VALUE_MAX)} here and does not count: it can change what "
        f"is counted, so it is {value}",
        flush=True,
    )


def _given(spark: SparkSession) -> dict[str, str]:
    """Return all settings set in any place."""
    conf: Any = spark._jsparkSession.sessionState().conf()
    told = conf.getAllConfs().mkString(_END).split(_END)
    return {name: value for name, arrow, value in (each.partition(" -> ") for each in told) if arrow}


def _check_known(spark: SparkSession, given: Mapping[str, str]) -> None:
    """Refuse a setting of a Spark newer than the list: the setting's effect is unknown."""
    unknown = [name for name in given if name.startswith(_SQL) and name not in by_name()]
    jvm: Any = spark._jvm
    for name in unknown:
        if _sql_conf(jvm).containsConfigKey(name):
            raise UnsafeSparkSetting(
                f"Spark {spark.version} has a setting {name}, which this version of txbatch does not check, and which may "
                f"change numbers; remove {name} from Spark's configuration, or install a newer txbatch"
            )


def _sql_conf(jvm: Any) -> Any:
    """Return the companion object of Spark's SQLConf, with all settings by name."""
    return getattr(getattr(jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$")
