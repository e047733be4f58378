"""The documents: their links lead somewhere, their commands exist, their examples run."""

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import stored_json
from doc_pages import example_jobs
from file_cases import DOCUMENT, with_tables
from sqlalchemy import Engine

import txbatch
from txbatch.cli.main import demo, main
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Interval
from txbatch.launch.job_file import load_job
from txbatch.local.demo import LOOK_FURTHER
from txbatch.postgres.ledger import PostgresLedger
from txbatch.testing import submit_topology

ROOT = Path(__file__).parents[2]
# What the reports name by number.
NINE_BATCHES = """
INSERT INTO txbatch.batch (topology, txid, position, key, metadata, lease_until, status, committed_at, committed_fence, fence,
                           token)
SELECT 'word_count', n, n, n, '{}', now(), 'committed', now(), 1, 1, n FROM generate_series(1, 9) n
"""
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", document.read_text())
    missing = [link for link in links if not link.startswith("http") and not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_exist(document: Path) -> None:
    text = document.read_text()
    named = set(re.findall(r"(?:^ {4}|`)(?:bin/)?txbatch ([a-z][a-z-]*)", text, re.MULTILINE))
    assert named <= set(main.commands), "commands of txbatch"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets, "targets of make"


def test_the_list_of_commands_has_each_command() -> None:
    _, _, section = (ROOT / "docs" / "run" / "shell.md").read_text().partition("\n## Every command\n")
    listed = "\n".join(line for line in section.partition("\n## ")[0].splitlines() if line.startswith("    txbatch "))
    assert set(main.commands) - set(re.findall(r"\btxbatch ([a-z-]+)", listed)) == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_rules_are_numbered_to_the_last_one(document: Path) -> None:
    rules = re.findall(r"^### (R\d+)$", (ROOT / "docs" / "rules.md").read_text(), re.MULTILINE)
    last = max(rules, key=lambda rule: int(rule[1:]))
    assert set(re.findall(r"\(?R1\)? to \(?(R\d+)", document.read_text())) <= {last}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_job_is_told_to_import_is_there(document: Path) -> None:
    assert set(re.findall(r"\btxbatch\.([A-Z]\w+)", document.read_text())) <= set(txbatch.__all__)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_imports_is_public(document: Path) -> None:
    """A room that people copy an import from cannot be moved any more."""
    named = set(re.findall(r"(?:from|import) txbatch\.(\w+(?:\.\w+)*)", document.read_text()))
    assert named <= {"orchestration", "reports", "testing"}


def test_the_readme_shows_the_job_that_the_demo_runs() -> None:
    (shown,) = blocks("README.md", "python")
    assert shown in (ROOT / "jobs" / "word_count.py").read_text()


def test_the_demo_ends_with_commands_that_exist() -> None:
    programs = re.findall("bin/txbatch ([a-z]+)(?: ([a-z]+))?", LOOK_FURTHER)
    assert {name for name, _ in programs} == {"demo", "init"} <= set(main.commands)
    assert {within for name, within in programs if name == "demo"} <= set(demo.commands)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)", LOOK_FURTHER)) == {"down", "clean", "up", "wheel"} <= targets


def test_readme_fits_one_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 60


@pytest.mark.parametrize("number", range(len(example_jobs())))
def test_example_jobs_define_a_topology(number: int, tmp_path: Path) -> None:
    job = tmp_path / f"documented_{number}.py"
    job.write_text(example_jobs()[number])
    assert load_job(str(job)).topology.aggregates


def test_a_bad_cell_goes_to_quarantine_as_documented(tmp_path: Path) -> None:
    (job,) = blocks("docs/quarantine.md", "python")
    (tmp_path / "shops.py").write_text(f"from txbatch import *\n{job}")
    shops = submit_topology(tmp_path / "shops.py")
    day = datetime(2026, 1, 1, tzinfo=UTC)
    shops.spouts["orders"].feed((1, day, "Oslo", "5.00"), (2, day, "Oslo", "12,50"))
    shops.run(interval=Interval(day, day + timedelta(days=1)))
    assert [(row["orders"], row["amount"]) for row in shops.rows("sales")] == [(1, Decimal("5.00"))]
    assert ['"amount": "12,50"' in row["data"] for row in shops.rows("shops_quarantine")] == [True]


def test_sql_of_the_documents_runs(engine: Engine) -> None:
    """The grants of docs/reference/grants.md, then, as the reader they make, the reports of docs/reports.md; none is kept."""
    topology = load_job(str(ROOT / "jobs" / "word_count.py")).topology
    PostgresLedger(engine).register(topology, "jobs/word_count.py")
    with engine.connect() as connection:
        for statements in blocks("docs/reference/grants.md", "sql"):
            within = statements.removeprefix("\\set ON_ERROR_STOP on\nBEGIN;\n").removesuffix("COMMIT;\n")
            connection.connection.cursor().execute(within)
        connection.exec_driver_sql(NINE_BATCHES)
        connection.exec_driver_sql("SET LOCAL ROLE report")
        for report in blocks("docs/reports.md", "sql"):
            connection.exec_driver_sql(report)


def test_the_readme_says_what_is_in_the_tree() -> None:
    for folder in ("dags", "jobs", "plugins", "sql", "tests", "docker-compose.yml"):
        assert (ROOT / folder).exists()


def test_the_tables_of_options_and_cases_are_as_the_code_and_the_golden_files_are() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert document == with_tables(document), "run .venv/bin/python tests/file_cases.py"


def test_the_objects_of_the_protocol_are_as_the_code_writes_and_reads_them() -> None:
    document = stored_json.DOCUMENT.read_text(encoding="utf-8")
    assert document == stored_json.with_sections(document), "run .venv/bin/python tests/stored_json.py"
    plan, assignment, manifest, *_ = (json.loads(json.dumps(each.example)) for each in stored_json.STORED)
    assert BatchPlan.from_json(plan) == stored_json.PLAN
    assert Assignment.from_json(assignment) == stored_json.ASSIGNMENT
    assert Manifest.from_json(manifest) == stored_json.MANIFEST
