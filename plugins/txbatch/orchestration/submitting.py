"""Submit a job to Spark by Airflow's operator: an attempt by itself, or an application for several attempts."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import EmissionFailed, InvalidSetting
from txbatch.launch.job_file import emits_nothing
from txbatch.orchestration.airflow import ensure_spark_connection, spark_master
from txbatch.orchestration.submit_hook import SubmitHook, Submitted

if TYPE_CHECKING:
    from txbatch.launch.application import Application
    from txbatch.launch.job_file import Job
    from txbatch.launch.submission import Submission

# From 6.0 on, the provider would resume the application of an earlier try, but each try is a new attempt (R5).
NOT_RESUMED: dict[str, Any] = (
    {"durable": False} if "durable" in inspect.signature(SparkSubmitOperator.__init__).parameters else {}
)


class SubmittingOperator(SparkSubmitOperator):
    """An operator that submits its job. Each submission gets its own arguments, and the user's arguments stay."""

    job: Job
    _spark: Application | None

    def submit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder, through Airflow's hook."""
        from txbatch import settings
        from txbatch.launch.submission import submission

        ensure_spark_connection(self._conn_id)
        what = submission(self.job, assignment, folder.uri, settings.home(), local=self._local)
        try:
            self._launch(what).run()
        except Exception as error:
            raise EmissionFailed(f"{what.name}: {error}") from error
        if not folder.said_something():
            raise emits_nothing(self.job)

    def on_kill(self) -> None:
        """End the submitted application."""
        if self._spark is None:
            super().on_kill()
        else:
            self._spark.kill()

    def _application(self) -> Application:
        from txbatch import settings
        from txbatch.launch.application import Application

        ensure_spark_connection(self._conn_id)
        self._spark = Application(self.job, settings.home(), self._launch_here, local=self._local)
        return self._spark

    @property
    def _local(self) -> bool:
        return spark_master(self._conn_id).startswith("local")

    @property
    def _one_application_serves(self) -> bool:
        """True if the driver is on this machine, and can receive further attempts."""
        ensure_spark_connection(self._conn_id)
        return bool(self._get_hook()._connection["deploy_mode"] != "cluster")

    def _launch_here(self, what: Submission) -> Submitted:
        """Launch with the driver on this machine, ready for further attempts."""
        launched = self._launch(what)
        if launched.hook._connection["deploy_mode"] == "cluster":
            raise InvalidSetting(
                f"{what.name}: one application for several batches needs Spark's client mode; {self._conn_id} says cluster"
            )
        return launched

    def _launch(self, what: Submission) -> Submitted:
        from txbatch.launch.submission import spark_environment

        # SparkSubmitOperator._get_hook reads the submission from the attributes alone. `conf` is restored afterwards, because a
        # task may submit several attempts: the conf of one attempt must not reach the next attempt in place of the user's own.
        given = self.conf or {}
        self.name, self.application_args, self.py_files = what.name, list(what.arguments), what.py_files
        self.conf = {**what.conf, **given}
        hook = self._hook = SubmitHook.of(self._get_hook())
        self.conf = given
        return Submitted(hook, what, {**spark_environment(), **what.environment, **(self.env_vars or {})})
