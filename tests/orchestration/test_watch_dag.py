"""The DAG of docs/run/monitor.md: its task fails while a topology is late, has gaps, fails or waits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from forks import told_with_airflow
from postgres_bench import Bench, words
from sqlalchemy import Engine
from support import LogSpout, run, word_count

PAGE = Path(__file__).parents[2] / "docs" / "run" / "monitor.md"
PROGRAM = """
import json, runpy, sys

made = runpy.run_path(sys.argv[1])["dag"]
try:
    found = made.get_task("check").python_callable()
except RuntimeError as error:
    found = str(error)
print(json.dumps({"dag": made.dag_id, "found": found}))
"""


def test_the_check_of_the_page_names_what_is_wrong(engine: Engine, postgres_url: str, tmp_path: Path) -> None:
    [file] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "watch.py").write_text(file)
    bench = Bench(engine, word_count(LogSpout({"a": 1_000_000}), max_pending=2))

    def told() -> Any:
        given = {"TXBATCH_DATABASE_URL": postgres_url, "TXBATCH_HOME": str(tmp_path / "home")}
        return told_with_airflow(PROGRAM, str(tmp_path / "watch.py"), folder=tmp_path, **given)

    bench.whole(words(dog=1), "1")
    assert told() == {"dag": "txbatch.watch", "found": None}
    assignment = bench.ledger.start_attempt(bench.planned("first"), run("first"), "code")
    bench.ledger.fail_attempt(assignment, "no such file")
    bench.emitted(words(dog=1), "second")
    bench.run(
        "UPDATE txbatch.attempt SET finished_at = finished_at - interval '2 hours'",
        "UPDATE txbatch.batch SET committed_at = committed_at - interval '1 day' WHERE status = 'committed'",
    )
    [late, failing, waits] = told()["found"].split("; ")
    assert late.startswith("word_count: late, counted to ")
    assert (failing, waits) == ("word_count: 1 failing", "word_count: second waits for txid 2")
