"""spark-submit as Airflow's hook calls it, without our credentials, and ended when the task is."""

from __future__ import annotations

import shutil
import sys
from typing import Self

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from txbatch.spark import parent


class SubmitHook(SparkSubmitHook):
    """Gives spark-submit the environment that `submit(env=...)` names and nothing else of ours."""

    @classmethod
    def of(cls, hook: SparkSubmitHook) -> Self:
        """The same hook, as one of ours."""
        ours = cls.__new__(cls)
        ours.__dict__.update(hook.__dict__)
        return ours

    def _build_spark_submit_command(self, application: str) -> list[str]:
        program, *arguments = super()._build_spark_submit_command(application)
        self._env = None  # what makes Airflow's hook hand on our whole environment, database credentials included
        return [sys.executable, "-S", parent.__file__, shutil.which(program) or program, *arguments]
