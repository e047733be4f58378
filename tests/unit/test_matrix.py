"""The matrix of versions: its cells cover all pairs, and its table says what ran, and nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from matrix import cells, environments, results
from matrix.__main__ import told
from matrix.cells import AXES, CELLS, MOVE, MOVED, ROWS, Cell
from matrix.results import FAILED, GREEN, NOT_RUN, Result

ROOT = Path(__file__).parents[2]
MOVES = ("leave", "go_on")
STEPS = ("parse", "run", "clear", "retry", "deferral", "note", "form", "restate", "backfill", "pages")
RAN = Result(
    CELLS[0],
    GREEN,
    "",
    "2026-11-27",
    {"airflow": "3.4.0b2", "postgres": "18.1", "python": "3.11.7", "pyspark": "4.3.0", "provider": "5.6.0"},
    {"parse": 3.1, "run": 20.2},
)


def test_every_pair_of_versions_is_in_a_cell() -> None:
    assert cells.missing_pairs() == set()
    assert len(CELLS) == len(set(CELLS)) >= 6
    assert all(version in AXES[axis] for cell in CELLS for axis, version in asdict(cell).items())


def test_a_pair_that_no_cell_has_is_found() -> None:
    """What proves the test above."""
    without = tuple(cell for cell in CELLS if (cell.airflow, cell.postgres) != ("3.4.0b2", "15"))
    assert frozenset((("airflow", "3.4.0b2"), ("postgres", "15"))) in cells.missing_pairs(without)


def test_the_table_of_the_page_is_that_of_the_stored_results() -> None:
    page = results.PAGE.read_text(encoding="utf-8")
    assert page == results.with_table(page, results.stored()), "run `make matrix`, or matrix.results.store()"


def test_the_page_names_no_version_that_did_not_run() -> None:
    """Exact versions stand in rows of cells that ran; each other row says that it was not run, and why."""
    stored = results.stored()
    assert [result.cell for result in stored] == [*ROWS]
    for result, row in zip(stored, results.table(stored).splitlines()[2:], strict=True):
        ran = result.outcome != NOT_RUN
        assert (f"| {NOT_RUN}: " in row) is not ran
        assert ({*results.COLUMNS} <= result.versions.keys()) is ran
        steps = MOVES if result.cell == MOVED else STEPS
        assert (result.outcome == GREEN) is (tuple(result.steps) == steps and ran and not result.why)


def test_what_ran_has_exact_versions_and_what_did_not_a_reason() -> None:
    missing = Result(CELLS[1], NOT_RUN, "there is no PostgreSQL 15 | in a folder\nof mine", "2026-11-27")
    broken = replace(RAN, outcome=FAILED, why="retry: AssertionError: 1")
    head, _, green, absent, failed = results.table([RAN, missing, broken]).splitlines()
    assert head == "| Airflow | PostgreSQL | Python | pyspark | smoke tier |"
    assert green == "| 3.4.0b2 | 18.1 | 3.11.7 | 4.3.0 | green: parse, run in 23 s, 2026-11-27 |"
    assert absent == "| 3.1.8 | 15 | 3.11 | 4.2 | not run: there is no PostgreSQL 15 / in a folder of mine |"
    assert "| failed at retry: AssertionError: 1; before: parse, run in 23 s, 2026-11-27 |" in failed


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page and a file of results of their own."""
    monkeypatch.setattr(results, "FILE", tmp_path / "results.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "versions.md")
    results.PAGE.write_text(f"before\n\n{results.BEGIN}old\n{results.END}\nafter\n")
    return results.PAGE


def test_a_result_takes_the_place_of_the_one_before_and_others_stay(kept: Path) -> None:
    results.store(RAN)
    results.store(replace(RAN, outcome=NOT_RUN, why="gone"), Result(CELLS[2], NOT_RUN, "no Python newer than 3.11"))
    found = {result.cell: result for result in results.stored()}
    assert (found[CELLS[0]].why, found[CELLS[2]].why) == ("gone", "no Python newer than 3.11")
    assert found[CELLS[1]] == Result(CELLS[1], NOT_RUN, results.NOT_TRIED)
    page = kept.read_text()
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")
    assert page.count("not run: ") == len(ROWS)


def test_lines_of_the_smoke_tier_make_the_result() -> None:
    lines = [
        "a warning",
        json.dumps({"versions": RAN.versions}),
        json.dumps({"step": "parse", "seconds": 3.1}),
        json.dumps({"step": "run", "error": "AssertionError: failed"}),
    ]
    result = Result(CELLS[0], why="")
    for line in lines:
        result = told(result, line)
    assert (result.versions, result.steps) == (RAN.versions, {"parse": 3.1})
    assert result.why == "run: AssertionError: failed"


def test_the_smoke_tier_has_all_of_its_steps() -> None:
    source = (Path(results.__file__).with_name("smoke.py")).read_text()
    (steps,) = re.findall(r"for each in \((parse, [a-z, ]+)\)", source)
    assert tuple(steps.split(", ")) == STEPS


def test_a_preview_of_airflow_is_asked_for_with_its_parts() -> None:
    wheel = Path("txbatch.whl")
    assert environments.requirements(CELLS[1], wheel)[1:] == ["apache-airflow==3.1.8", "pyspark~=4.2.0"]
    assert "apache-airflow-core==3.4.0b2" in environments.requirements(CELLS[0], wheel)


def test_the_airflow_that_is_exchanged_has_the_same_ledger_and_python() -> None:
    before, after = MOVE
    assert (before.postgres, before.python) == (after.postgres, after.python) == (MOVED.postgres, MOVED.python)
    assert f"{before.airflow}, then {after.airflow}" == MOVED.airflow
    assert f"{before.pyspark}, then {after.pyspark}" == MOVED.pyspark


@pytest.mark.parametrize(("words", "many"), [([], len(ROWS)), (["3.4.0b2"], 2), (["3.1.8", "15"], 1), (["moved"], 1)])
def test_cells_are_chosen_by_their_versions(words: list[str], many: int) -> None:
    assert len(cells.chosen(words)) == many
    assert all(isinstance(each, Cell) for each in cells.chosen(words))


def test_a_version_that_no_cell_has_is_told() -> None:
    with pytest.raises(SystemExit, match=r"no cell has 9\.9"):
        cells.chosen(["9.9"])
