"""Each DAG file of the tutorial and the cookbook is a DAG with tasks, beside the job files of its page."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from doc_pages import RECIPES, TUTORIALS, files
from forks import told_with_airflow

PROGRAM = """
import json, runpy, sys
from airflow.sdk import DAG

def made(file):
    return [each for each in runpy.run_path(file).values() if isinstance(each, DAG)]

print(json.dumps({file: {dag.dag_id: len(dag.tasks) for dag in made(file)} for file in sys.argv[1:]}))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """The DAGs of each file, with how many tasks each has."""
    root, dags = tmp_path_factory.mktemp("pages"), []
    for page in (*TUTORIALS, *RECIPES):
        for path, text in files(page).items():
            if path.endswith(".py"):
                file = root / page.stem / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
        dags += [root / page.stem / path for path in files(page, "dags/")]
    found: dict[str, dict[str, int]] = told_with_airflow(PROGRAM, *map(str, dags), folder=root)
    return found


def test_each_file_makes_dags(made: dict[str, dict[str, int]]) -> None:
    assert made
    assert {file: dags for file, dags in made.items() if not dags or not all(dags.values())} == {}


def test_no_two_of_them_are_one_dag(made: dict[str, dict[str, int]]) -> None:
    names = [name for dags in made.values() for name in dags]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_has_a_whole_job_and_a_whole_dag(page: Path) -> None:
    """Airflow passes over files without both words, in silence."""
    assert files(page, "jobs/")
    dags = files(page, "dags/")
    assert dags
    for text in dags.values():
        docstring = (ast.get_docstring(ast.parse(text)) or "").lower()
        assert "airflow" in docstring
        assert "dag" in docstring
