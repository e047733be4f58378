"""What must stay true of the source itself."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "plugins"
PACKAGE = PLUGINS / "txbatch"
MODULES = sorted(PACKAGE.rglob("*.py"))
# A folder's name between slashes, alone or among others of a regular expression: any checkout may lie below such a folder.
FOLDER = re.compile(r"[/\\][^/\\]*\b(txbatch|pyspark|airflow|spark|plugins|site-packages)\b[^/\\]*[/\\]")
SOURCES = sorted(file for part in ("plugins", "tests", "bench") for file in (ROOT / part).rglob("*.py"))
PIN = re.compile(r"[a-z0-9][a-z0-9._-]*==[A-Za-z0-9.+!]+( ; [^:/]+)?( --hash=sha256:[0-9a-f]{64})+")


def dotted(module: Path) -> str:
    return ".".join(module.relative_to(PLUGINS).with_suffix("").parts).removesuffix(".__init__")


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_airflow_does_not_scan_the_package() -> None:
    """Without this line Airflow executes each of our modules as a top-level one, under its bare name."""
    assert "txbatch/" in (PLUGINS / ".airflowignore").read_text().splitlines()


@pytest.mark.parametrize("module", MODULES, ids=dotted)
def test_no_module_has_the_name_of_one_of_pythons_own(module: Path) -> None:
    """The second line of defence: a scanned `types.py` would take the place of Python's."""
    assert module.stem == "__init__" or module.stem not in sys.stdlib_module_names


def test_what_a_job_file_imports_needs_python_alone() -> None:
    """`import txbatch` and the core, on an interpreter that sees no installed package."""
    core = [dotted(module) for module in MODULES if "core" in module.relative_to(PACKAGE).parts]
    assert "txbatch.core.topology.topology" in core
    python("-I", "-S", "-c", f"import sys; sys.path.append({str(PLUGINS)!r}); import txbatch, {', '.join(core)}")


SIMPLE_JOB = """
from txbatch import FileSpout, OpaqueState, Sum, Topology, emit
stream = Topology("lines").new_stream("in", FileSpout("/lines")).each("length(line)", "length int")
stream.group_by("line").persistent_aggregate(OpaqueState("lines"), length=Sum("length"))
"""
# What the definition of a simple job does without: each would add its part to what the import takes.
DONE_WITHOUT = (
    *("hashlib", "subprocess", "zoneinfo"),
    *("txbatch.core.batch.transaction", "txbatch.core.upstream", "txbatch.core.aggregates.approx_distinct"),
    *("txbatch.embedded", "txbatch.launch", "txbatch.settings", "txbatch.storage"),
)


def test_a_job_file_pays_for_what_it_names() -> None:
    """Each start of a task, of Spark's driver and of Spark's workers pays for it; bench/imports.py measures it."""
    path, told = f"import sys; sys.path.append({str(PLUGINS)!r})", "import json; print(json.dumps(sorted(sys.modules)))"
    brought = json.loads(python("-I", "-S", "-c", f"{path}{SIMPLE_JOB}{told}"))
    assert not set(brought) & set(DONE_WITHOUT)
    assert [each for each in brought if each.startswith("txbatch.spouts.")] == ["txbatch.spouts.file"]


def test_what_a_job_can_import_is_told_alike_to_type_checkers_and_to_python() -> None:
    import txbatch

    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    checked = next(each for each in tree.body if isinstance(each, ast.If)).body
    imports = [each for each in checked if isinstance(each, ast.ImportFrom) and str(each.module).startswith("txbatch.")]
    places = {alias.name: str(each.module) for each in imports for alias in each.names}
    assert places == {name: f"txbatch.{module}" for name, module in txbatch._MODULES.items()}
    assert {*places, "emit"} == set(txbatch.__all__) <= set(dir(txbatch))
    for name, module in places.items():
        assert getattr(txbatch, name) is getattr(sys.modules[module], name)


def test_a_misspelt_name_is_told() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Topolgy' from 'txbatch'"):
        exec("from txbatch import Topolgy")


def without_airflow() -> list[str]:
    return [
        dotted(module)
        for module in MODULES
        if not {"orchestration", "spark", "ui"} & set(module.relative_to(PACKAGE).parts)
    ]


def test_only_orchestration_and_pages_import_airflow_and_only_spark_imports_pyspark() -> None:
    """Both take seconds to import; in all other modules they are imported where they are used."""
    imports = f"import sys; sys.path.insert(0, {str(PLUGINS)!r}); import {', '.join(without_airflow())}"
    python("-I", "-c", f"{imports}; sys.exit({{'airflow', 'pyspark'}} & set(sys.modules) or 0)")


@pytest.mark.parametrize("file", sorted((ROOT / "dags").glob("**/*.py")), ids=lambda file: file.stem)
def test_airflow_takes_the_file_for_one_with_a_dag(file: Path) -> None:
    """Airflow passes over files without both words, in silence. In a docstring they survive edits."""
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    assert "airflow" in docstring.lower()
    assert "dag" in docstring.lower()


COPIED = [file for files in ("dags/*.py", "starter/dags/*.py", "docs/**/*.md") for file in sorted(ROOT.glob(files))]


@pytest.mark.parametrize("file", COPIED, ids=lambda file: file.name)
def test_what_people_copy_imports_timetables_from_where_each_airflow_has_them(file: Path) -> None:
    """airflow.sdk has none before Airflow 3.2; airflow.timetables has them from 3.1 to 3.3, deprecated in none."""
    assert not re.search(r"from airflow\.sdk import .*Timetable", file.read_text())


def decided_by_folder(tree: ast.AST) -> Iterator[int]:
    """The lines where a path is searched for the name of a folder; looking below a known folder is none of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and re.search(
            "search|match|compile|find|split|partition", ast.unparse(node.func)
        ):
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            texts = [node.left.value] if isinstance(node.left, ast.Constant) else []
        else:
            texts = []
            whole = ast.unparse(node) if isinstance(node, ast.Attribute) and node.attr in ("parts", "parents") else ""
            if re.search(r"(path|file|module|__file__\)?)(\.resolve\(\))?\.parts$", whole):
                yield node.lineno
        yield from (node.lineno for text in texts if isinstance(text, str) and FOLDER.search(text))


@pytest.mark.parametrize(
    "source",
    [
        're.search("/(pyspark|txbatch)/", frame)',
        '"/txbatch/" in str(path)',
        'path.find("/site-packages/")',
        'module.__file__.partition("/plugins/")',
        '"spark" in path.parts',
    ],
)
def test_a_decision_by_a_folders_name_is_found(source: str) -> None:
    assert list(decided_by_folder(ast.parse(source))) == [1]


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_decided_by_the_name_of_a_folder_that_a_path_leads_through(file: Path) -> None:
    """A checkout, a home or a virtual environment may lie anywhere: what a file is, its package or its root says."""
    if file != Path(__file__):
        assert list(decided_by_folder(ast.parse(file.read_text(encoding="utf-8")))) == []


def test_no_module_takes_the_place_of_what_a_job_imports() -> None:
    """Once `txbatch.x` is imported, `from txbatch import x` gives the module."""
    import txbatch

    modules = {path.stem for path in (ROOT / "plugins" / "txbatch").iterdir()}
    assert modules & set(txbatch.__all__) == set()


def requirements(file: str = "requirements.txt") -> list[str]:
    """A line a package, with the digests of its files."""
    lines = re.sub(r" \\\n +", " ", (ROOT / file).read_text()).splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("file", ["requirements.txt", "docker/requirements.txt"])
def test_requirements_are_exact_to_the_digest_and_name_no_host(file: str) -> None:
    assert requirements(file)
    assert [line for line in requirements(file) if not PIN.fullmatch(line)] == []
    assert "://" not in (ROOT / file).read_text()


def test_requirements_leave_out_what_overwrites_pyspark() -> None:
    names = {line.split("==")[0] for line in requirements()}
    assert "pyspark" in names
    assert "pyspark-client" not in names


def test_requirements_are_resolved_from_what_is_asked_for() -> None:
    asked = [line for line in (ROOT / "requirements.in").read_text().splitlines() if line and not line.startswith("#")]
    names = {re.split("[<>=]", line)[0] for line in asked}
    assert names <= {line.split("==")[0] for line in requirements()}


ROOMS = sorted(file.parent for file in PACKAGE.rglob("*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(PACKAGE)))
def test_a_room_says_what_it_is_and_in_which_order_to_read_it(room: Path) -> None:
    """Its docstring names each of its modules and rooms, and no other."""
    docstring = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    there = {path.stem for path in room.glob("*.py")} | {path.parent.name for path in room.glob("*/__init__.py")}
    assert set(re.findall(r"`(\w+)`", docstring)) == there - {"__init__"}


@pytest.mark.parametrize("room", sorted(file.parent for file in PACKAGE.rglob("__init__.py")), ids=dotted)
def test_a_room_can_be_taken_in_at_a_glance(room: Path) -> None:
    assert len([*room.glob("*.py")]) - 1 <= 22


@pytest.mark.parametrize("module", MODULES, ids=dotted)
def test_a_module_has_one_idea(module: Path) -> None:
    """One that is longer has two: part it by them, not by its length."""
    assert len(module.read_text(encoding="utf-8").splitlines()) <= 400


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WHERE_IS_WHAT = (ROOT / "docs" / "where-is-what.md").read_text(encoding="utf-8")
# A module as the two pages name one.
NAMED = re.compile(r"`(\w+(?:/\w+)+)`")


@pytest.mark.parametrize("page", [ARCHITECTURE, WHERE_IS_WHAT], ids=["architecture", "where-is-what"])
def test_documents_name_modules_that_exist(page: str) -> None:
    named = NAMED.findall(page)
    assert named
    assert [name for name in named if not (PACKAGE / f"{name}.py").exists()] == []


def first_column(head: str) -> list[set[str]]:
    """Return the names in the first cell of each row of a table on the page of architecture, from top to bottom."""
    rows = ARCHITECTURE.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [set(re.findall(r"`(\w+)`", row.split("|")[1])) for row in rows]


def test_the_page_shows_the_layers_that_lint_checks() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contracts = tools["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == ["txbatch"])
    assert first_column("layer, from the top") == [set(layer.split(" | ")) for layer in layers]


@pytest.mark.parametrize(
    ("room", "head"), [("core", "rooms of `core`, from the ground up"), ("postgres", "rooms of `postgres`")]
)
def test_the_page_shows_each_room(room: str, head: str) -> None:
    shown = [name for names in first_column(head) for name in names]
    assert sorted(shown) == sorted(path.parent.name for path in (PACKAGE / room).glob("*/__init__.py"))


def test_the_page_of_architecture_fits_one_screen() -> None:
    assert len(ARCHITECTURE.splitlines()) <= 70


def test_the_protocol_is_read_in_one_sitting() -> None:
    """From top to bottom, in the order of docs/where-is-what.md: whoever adds lines parts what is no protocol, by what it is."""
    order = WHERE_IS_WHAT.partition("## Reading order")[2].partition("Then read a room")[0]
    named = NAMED.findall(order)
    assert "core/protocol/decisions" in named
    assert sum(len((PACKAGE / f"{name}.py").read_text(encoding="utf-8").splitlines()) for name in named) <= 3000


def test_every_named_statement_is_used() -> None:
    text = "\n".join(module.read_text(encoding="utf-8") for module in MODULES)
    named = re.findall(
        r"^-- (\w+) --$", "\n".join(file.read_text() for file in (ROOT / "sql").rglob("*.sql")), re.MULTILINE
    )
    assert [name for name in named if f'"{name}"' not in text] == []
    assert sorted(set(named)) == sorted(named), "one of a name takes the place of another"


@pytest.mark.parametrize("module", MODULES, ids=dotted)
def test_a_context_manager_says_that_it_is_one(module: Path) -> None:
    """Called without `with`, it does nothing in silence."""
    functions = [
        node for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    ]
    managers = [each for each in functions if any("contextmanager" in ast.unparse(one) for one in each.decorator_list)]
    silent = [each.name for each in managers if not (ast.get_docstring(each) or "").startswith("Context manager. ")]
    assert silent == []


def logged_raw(tree: ast.AST) -> Iterator[str]:
    """Yield each name of a run that a line of a log takes as it is: a run's name is whoever started the run's to choose."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("log."):
            yield from (
                text for text in map(ast.unparse, call.args) if re.fullmatch(r"\w*run\.name|.*\blease_run", text)
            )


def test_a_runs_name_that_is_logged_raw_is_found() -> None:
    found = list(logged_raw(ast.parse('log.info("%s %s %s", its_run.name, shown(run.name), batch.lease_run)')))
    assert found == ["its_run.name", "batch.lease_run"]


def test_no_line_of_a_log_is_anothers_to_write() -> None:
    found = {str(file): list(logged_raw(ast.parse(file.read_text(encoding="utf-8")))) for file in MODULES}
    assert not {file: names for file, names in found.items() if names}


# `run --follow`, `plan --restate` and `plan --rebuild`: a line of a shell, a text, or the words of a call in a test.
OLD_SPELLING = re.compile(r"--(?:follow|restate|rebuild)\b|(?<!-)\bplan\b[^`\n]*--(?:sample|all|master)\b")
# Where the changelog says which spelling goes, and what comes for it.
FAREWELL = re.compile(r"^- `txbatch run JOB --follow` is .*?The old spellings work", re.MULTILINE | re.DOTALL)
TOLD = [
    *(file for part in ("docs", "starter", "jobs", "dags", "docker", "bin") for file in (ROOT / part).rglob("*")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "docker-compose.yml")),
    *SOURCES,
]
# Those that take an old spelling, and what says that they do.
TAKERS = ("plugins/txbatch/cli/run.py", "plugins/txbatch/cli/plan/plan.py", "tests/cli/test_old_spelling.py")


def old_spellings(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8", errors="replace")
    return [line for line in FAREWELL.sub("", text).splitlines() if OLD_SPELLING.search(line)]


@pytest.mark.parametrize("line", ['"plan", job, "--restate", "1"', "txbatch run x.py --follow", "plan x.py --all"])
def test_an_old_spelling_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"{line}\ntxbatch rebuild x.py --plan --all\n")
    assert old_spellings(tmp_path / "page.md") == [line]


def test_nobody_is_told_an_old_spelling_of_a_command() -> None:
    """What prints, what documents and what tests: only what still takes one names it."""
    own = {Path(__file__), *(ROOT / taker for taker in TAKERS)}
    found = {str(file): old_spellings(file) for file in TOLD if file.is_file() and file not in own}
    assert not {file: lines for file, lines in found.items() if lines}


def test_the_ledger_asks_for_nothing_that_a_server_in_fips_mode_refuses() -> None:
    asked = (ROOT / "sql" / "schema.sql", *(ROOT / "sql" / "queries").glob("*.sql"))
    assert [file.name for file in asked if "md5(" in file.read_text(encoding="utf-8")] == []
