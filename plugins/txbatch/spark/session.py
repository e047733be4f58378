"""The Spark session of an emit attempt."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError

from txbatch.spark import site_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """Context manager. Yield the session that spark-submit configured, under this application name, and stop it at the end."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(name).getOrCreate()
    try:
        yield configured(spark)
    finally:
        with suppress(Py4JNetworkError):  # nobody is there to be stopped
            spark.stop()


def configured(spark: SparkSession) -> SparkSession:
    """The session with our semantics. Spark's own way of logging an error is silenced: `txbatch.launch.driver` tells it."""
    site_settings.pin(spark)
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).disabled = True
    return spark


def ship_by_value(folder: Path) -> list[str]:
    """Let functions of the modules in the job's folder travel to executors by value, for executors lack the folder.

    Returns the names of the modules found loaded.
    """
    from pyspark import cloudpickle

    shipped = [name for name, module in list(sys.modules.items()) if name != "__main__" and _lies_in(module, folder)]
    for name in shipped:
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
    return shipped


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve().is_relative_to(folder.resolve())
