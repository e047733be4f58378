"""What spark-submit is told, wherever Spark runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from txbatch import Topology
from txbatch.embedded import java
from txbatch.launch import submission
from txbatch.launch.job_file import Job


@pytest.mark.parametrize("local", [True, False])
def test_the_drivers_page_is_off_wherever_spark_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    monkeypatch.setattr(java, "java_home", lambda home: tmp_path)
    monkeypatch.setattr(java, "spark_submit_java_options", lambda *_, **__: "")
    monkeypatch.setattr(submission, "package_zip", lambda home: tmp_path)
    job = Job("job", tmp_path, Topology("job"), "code")
    told = submission.application(job, "name", [], tmp_path, local=local, short=True)
    assert told.conf["spark.ui.enabled"] == "false"
