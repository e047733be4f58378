"""`txbatch doctor` reaches each source of the jobs, and says who reads what; no URL is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from source_intervals import DAY, Sales, sales_in
from source_tables import READ, VARIABLE, known, role

from txbatch.cli.project.sources import check_sources
from txbatch.core.errors import SourceUnfit
from txbatch.core.protocol.ledger import Offsets
from txbatch.core.topology.topology import Topology

JOB = """
from txbatch import *
FIELDS = "id bigint, shop string, sold_at timestamp"
topology = Topology("{name}")
stream = topology.new_stream("sales", {spout})
stream.group_by("shop").persistent_aggregate(OpaqueState("{name}"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
GROWS = 'PostgresSpout("shop.sale", FIELDS, source="shop")'
BY_TIME = 'PostgresIntervalSpout("shop.sale", FIELDS, time="sold_at", source="shop")'


def nothing_counted(_: Topology) -> Offsets:
    return {}


@pytest.fixture
def sales(databases: Callable[[str], str]) -> Iterator[Sales]:
    with sales_in(databases("shop")) as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "broken.py").write_text("import nosuch\n")
    given = 'FixedBatchSpout("shop string", 1, ("a",))'
    for name, spout in (("grows", GROWS), ("by_time", BY_TIME), ("given", given)):
        (jobs / f"{name}.py").write_text(JOB.format(name=name, spout=spout))
    return tmp_path


def test_it_says_who_reads_what(sales: Sales, project: Path) -> None:
    sales.sell(DAY, 1)
    with role(sales.shop.url, *READ) as url, known(url):
        told = check_sources(project, nothing_counted)
    assert told.startswith("shop.sale (source 'shop') is read by the role 'role_")
    assert told.count("shop.sale") == 1


def test_each_job_that_cannot_read_is_named(sales: Sales, project: Path) -> None:
    sales.shop.ask("ALTER TABLE shop.sale ALTER sold_at DROP NOT NULL")
    with pytest.raises(SourceUnfit) as refused:
        check_sources(project, nothing_counted)
    assert "jobs/by_time.py, stream 'sales': shop.sale (source 'shop'): sold_at may be null" in refused.value.text
    assert "grows.py" not in refused.value.text


def test_a_source_that_does_not_answer_or_is_not_known(
    sales: Sales, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setenv(VARIABLE, "postgresql://reader:heron@127.0.0.1:1/shop")
        with pytest.raises(SourceUnfit, match="does not answer") as refused:
            check_sources(project, nothing_counted)
        assert "heron" not in str(refused.value)
        away.delenv(VARIABLE)
        with pytest.raises(SourceUnfit, match=r"jobs/by_time\.py, .* is not known here.*jobs/grows\.py"):
            check_sources(project, nothing_counted)


def test_jobs_without_sources_are_well(tmp_path: Path) -> None:
    assert check_sources(tmp_path, nothing_counted) == "no job reads a source with credentials"
