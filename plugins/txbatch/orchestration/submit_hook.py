"""spark-submit, called like Airflow's hook, but without credentials of txbatch. The process ends with its task."""

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
    """Gives spark-submit only the environment from `submit(env=...)`, and nothing else of the task's environment."""

    @classmethod
    def of(cls, hook: SparkSubmitHook) -> Self:
        """Return a SubmitHook with all attributes of the given hook.

        SparkSubmitHook takes some thirty arguments, a few of them new in each version, and its operator can make no other
        class. A copy of all attributes needs no names of arguments.
        """
        ours = cls.__new__(cls)
        ours.__dict__.update(hook.__dict__)
        return ours

    def _build_spark_submit_command(self, application: str) -> list[str]:
        program, *arguments = super()._build_spark_submit_command(application)
        self._env = None  # otherwise Airflow's hook passes on the whole environment, with database credentials
        return [sys.executable, "-S", parent.__file__, shutil.which(program) or program, *arguments]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A submission with its hook, launched by `txbatch.launch.application`."""

    hook: SubmitHook
    what: Submission
    environment: Mapping[str, str]

    def run(self) -> None:
        """Run to the end. Raise TransientError if the submission fails."""
        try:
            self.hook.submit(self.what.application, env=self.environment)
        except AirflowException as error:
            code = self.hook._submit_sp.returncode if self.hook._submit_sp else 0
            raise ended(code) if code else EmissionFailed(str(error)) from None  # Airflow's shows the command line

    def kill(self) -> None:
        """End the submission at once if running."""
        self.hook.on_kill()
