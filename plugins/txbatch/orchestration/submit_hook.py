"""spark-submit as Airflow's hook calls it, without our credentials, and ended when the task is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException

from txbatch.core.errors import EmissionFailed
from txbatch.launch.submission import ended
from txbatch.spark.process import parent

if TYPE_CHECKING:
    from txbatch.launch.submission import Submission


class SubmitHook(SparkSubmitHook):
    """Gives spark-submit the environment that `submit(env=...)` names and nothing else of ours."""

    @classmethod
    def of(cls, hook: SparkSubmitHook) -> Self:
        """Return a hook of ours with all that the given one was made with.

        SparkSubmitHook takes some thirty arguments, a few of them new in each version, and the operator that fills them makes
        its class alone. Copying what it has made needs to know none of them.
        """
        ours = cls.__new__(cls)
        ours.__dict__.update(hook.__dict__)
        return ours

    def _build_spark_submit_command(self, application: str) -> list[str]:
        program, *arguments = super()._build_spark_submit_command(application)
        self._env = None  # what makes Airflow's hook hand on our whole environment, database credentials included
        return [sys.executable, "-S", parent.__file__, shutil.which(program) or program, *arguments]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A submission with the hook that runs it: what `txbatch.launch.application` launches."""

    hook: SubmitHook
    what: Submission
    environment: Mapping[str, str]

    def run(self) -> None:
        """To its end. TransientError when it fails."""
        try:
            self.hook.submit(self.what.application, env=self.environment)
        except AirflowException as error:
            code = self.hook._submit_sp.returncode if self.hook._submit_sp else 0
            raise ended(code) if code else EmissionFailed(str(error)) from None  # Airflow's has the whole command line

    def kill(self) -> None:
        """End it at once, if it runs."""
        self.hook.on_kill()
