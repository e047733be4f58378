"""`txbatch change`: what a changed job is told is what is then done, on request and with a reason (R23)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cli_support import contents, job_of, refused
from click.testing import Result
from sqlalchemy import Engine

from txbatch.postgres.reading.ledger_reader import LedgerReader

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
BEFORE = job_of("t", "s").replace("count=Count()", 'count=Count(), low=Min("word")')
NOW = job_of("t", "s").replace("count=Count()", 'n=Count(was="count"), high=Max("word", since="now")')
TOLD = [
    ("in place", "value 'low' of state 's' is gone"),
    ("in place", "value 'n' of state 's' was 'count'"),
    ("from now on", "value 'high' of state 's' is new, string"),
]


@pytest.mark.rule("R23")
def test_a_change_is_told_then_applied_with_a_reason(txbatch: Txbatch, write_job: WriteJob, engine: Engine) -> None:
    assert txbatch("run", write_job("job.py", BEFORE)).exit_code == 0
    job, before = write_job("job.py", NOW), contents(engine)
    for command in ("run", "plan"):
        result = txbatch(command, job)
        refused(result, f"or `txbatch change {job} --why '...' --yes` applies it to 't', in place: value 'low'")
        assert all(what in result.stderr for _, what in TOLD)
    shown = txbatch("change", job)
    assert [tuple(line.split("  ", 1)) for line in shown.stdout.splitlines()[1:]] == [
        (how, what.rjust(len(what) + len("from now on") - len(how))) for how, what in TOLD
    ]
    assert "nothing is changed yet: say --why '...' --yes" in shown.stderr
    refused_use = txbatch("change", job, "--yes")
    assert refused_use.exit_code == 2
    assert "say --why, too" in refused_use.stderr
    assert contents(engine) == before
    applied = txbatch("change", job, "--yes", "--why", "finance asks", "--json")
    assert [(each["how"], each["what"], each["applied"]) for each in json.loads(applied.stdout)] == [
        (*each, True) for each in TOLD
    ]
    assert txbatch("change", job).stderr == "nothing is defined otherwise\n"
    assert txbatch("run", job).exit_code == 0
    rows = json.loads(txbatch("query", "s", "a", "b", "--json").stdout)
    assert [(row["word"], row["n"], row["high"]) for row in rows] == [("a", 1, None), ("b", 1, "b")]


@pytest.mark.rule("R23")
@pytest.mark.parametrize(
    "command",
    [
        ("run", "{}"),
        ("plan", "{}"),
        ("rebuild", "{}", "--plan"),
        ("verify", "{}"),
        ("restate", "{}", "1", "--why", "a bad file"),
        ("rebuild", "{}", "--why", "a bad file"),
        ("rebuild", "{}", "--status"),
        ("rebuild", "{}", "--cancel"),
    ],
    ids=lambda command: " ".join(command),
)
def test_a_job_that_is_not_renamed_yet_is_told_the_name_that_is_known_and_what_renames_it(
    command: tuple[str, ...], txbatch: Txbatch, write_job: WriteJob
) -> None:
    before = job_of("t", "s")
    assert txbatch("run", write_job("job.py", before)).exit_code == 0
    job = write_job("job.py", before.replace("Topology('t'", "Topology('sales', was='t'"))
    result = txbatch(*(each.format(job) for each in command))
    refused(result, f"`txbatch change {job} --why '...' --yes`")
    assert "'sales'" in result.stderr
    assert "'t'" in result.stderr
    assert txbatch("change", job, "--why", "finance calls it so", "--yes").exit_code == 0
    assert txbatch("rebuild", job, "--status").exit_code == 0


@pytest.mark.rule("R23")
def test_what_needs_a_rebuild_is_told_and_not_applied(txbatch: Txbatch, write_job: WriteJob, engine: Engine) -> None:
    assert txbatch("run", write_job("job.py", BEFORE)).exit_code == 0
    job = write_job("job.py", NOW.replace(', since="now"', ""))
    before = contents(engine)
    shown = txbatch("change", job)
    assert "rebuild   value 'high' of state 's' is new (string, greatest)" in shown.stdout
    assert f"`txbatch rebuild {job} --why '...'`" in shown.stderr
    assert "--yes" not in shown.stderr
    told = "rebuild: value 'high' of state 's' is new (string, greatest). Give what is new since=\"now\""
    refused(txbatch("change", job, "--yes", "--why", "finance asks"), told)
    assert contents(engine) == before


@pytest.mark.parametrize("by", ["name", "job"])
def test_how_a_topology_stands_is_not_asked_to_find_its_rebuilds(
    by: str, txbatch: Txbatch, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, asked = write_job("job.py", job_of("t", "s")), list[str | None]()
    assert txbatch("run", job).exit_code == 0
    status = LedgerReader.status

    def noted(reader: LedgerReader, topology: str | None = None) -> Any:
        asked.append(topology)
        return status(reader, topology)

    monkeypatch.setattr(LedgerReader, "status", noted)
    assert txbatch("rebuild", "t" if by == "name" else job, "--status").exit_code == 0
    assert asked == []
    refused(txbatch("rebuild", "none", "--status"), "no topology 'none' is known")


def test_a_job_that_never_ran(txbatch: Txbatch, write_job: WriteJob) -> None:
    job = write_job("job.py", NOW)
    assert txbatch("change", job).stderr == "nothing is defined otherwise\n"
    refused(txbatch("change", job, "--yes", "--why", "x"), "no topology 't' is known")


@pytest.mark.rule("R23")
def test_what_would_be_refused_now_is_told_before(txbatch: Txbatch, write_job: WriteJob) -> None:
    """What a rebuild replaced keeps its names until it is dropped."""
    before = write_job("job.py", job_of("t", "s"))
    assert txbatch("run", before).exit_code == 0
    assert txbatch("rebuild", before, "--why", "once more").exit_code == 0
    job = write_job("job.py", job_of("t", "s").replace("OpaqueState('s')", "OpaqueState('words', was='s')"))
    told = (
        "nothing is changed yet, and cannot be now: TX602 (try again): topology 't' and its states keep their names "
        "while what they were"
    )
    shown = txbatch("change", job)
    assert (shown.exit_code, "in place  state 'words' was 's'" in shown.stdout, told in shown.stderr) == (0, True, True)
    assert txbatch("rebuild", "t", "--drop-past").exit_code == 0
    assert "nothing is changed yet: say --why" in txbatch("change", job).stderr
    assert txbatch("change", job, "--why", "a better name", "--yes").exit_code == 0
