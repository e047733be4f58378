"""The Spark session of an emit attempt."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError

from txbatch.spark import site_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """Context manager. Yield the session configured by spark-submit, under the application name, and stop the session at the
    end.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(name).getOrCreate()
    try:
        yield configured(spark)
    finally:
        with suppress(Py4JNetworkError):  # nobody is there to be stopped
            spark.stop()


def configured(spark: SparkSession) -> SparkSession:
    """Return the session with txbatch's semantics. Spark's own logging of errors is silenced: `txbatch.launch.driver` prints
    errors.
    """
    site_settings.pin(spark)
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).disabled = True
    return spark
