"""A source is known by a name, which a variable or a connection has; Spark's driver is told of the sources of its job alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology, settings
from txbatch.core.errors import InvalidSetting
from txbatch.launch.job_file import Job
from txbatch.launch.submission import SparkSubmit, application, spark_environment

URL = "postgresql://reader:heron@db:5432/shop"


class Remote(FixedBatchSpout):
    """A source with credentials."""

    variables = ("TXBATCH_SOURCE_SHOP", "ALSO_NEEDED")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    topology = Topology("sales")
    stream = topology.new_stream("in", Remote("word string", 1, ("a",)))
    stream.group_by("word").persistent_aggregate(OpaqueState("sales"), count=Count())
    return Job("sales", tmp_path / "job.py", topology, "code")


@pytest.fixture
def connections() -> Iterator[dict[str, str]]:
    """What a process of Airflow knows by its connections."""
    known: dict[str, str] = {}
    settings.sources_from(known.get)
    yield known
    settings.sources_from(lambda name: None)


def test_a_variable_goes_before_a_connection(connections: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    connections["shop"] = f"{URL}_of_connection"
    assert settings.source_url("shop") == f"{URL}_of_connection"
    monkeypatch.setenv("TXBATCH_SOURCE_SHOP", URL)
    assert settings.source_url("shop") == URL


def test_an_unknown_source_is_told_by_both_of_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXBATCH_SOURCE_SHOP", raising=False)
    told = "source 'shop' is not known here: set TXBATCH_SOURCE_SHOP, or the Airflow connection txbatch_source_shop"
    with pytest.raises(InvalidSetting, match=told):
        settings.source_url("shop")


@pytest.mark.parametrize("name", ["", "Shop", "1shop", "a-b", "a" * 41, "shöp", URL, None, 7])
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(InvalidSetting, match="is no name"):
        settings.source_url(name)  # type: ignore[arg-type]


def test_the_driver_is_told_of_the_sources_of_its_job_alone(
    job: Job, connections: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "java").symlink_to(settings.project_root() / ".txbatch" / "java")
    connections["shop"] = URL
    monkeypatch.setenv("ALSO_NEEDED", "geheim")
    monkeypatch.setenv("TXBATCH_SOURCE_OTHER", f"{URL}_of_another")
    what = application(job, "sales", [], tmp_path, local=True, short=True)
    assert what.environment["TXBATCH_SOURCE_SHOP"] == URL
    assert what.environment["ALSO_NEEDED"] == "geheim"
    assert "TXBATCH_SOURCE_OTHER" not in {**spark_environment(), **what.environment}
    assert not [part for part in SparkSubmit(what).command() if "heron" in part or "geheim" in part]
