"""What Spark's Python workers are forked from in the tests' session: what each would import, 0.6 s long, is there already."""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import txbatch  # noqa: F401

if __name__ == "__main__":
    manager()
