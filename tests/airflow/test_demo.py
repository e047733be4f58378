"""The demo: two topologies, a real Airflow, two kills, and counts that equal independent ones; and `make demo` from zero."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from airflow_support import Shown

from txbatch.embedded import postgres

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(900)


def words_of(printed: str) -> int:
    """How many words the demo has counted; that it has shown what it promises."""
    assert printed.count("SIGKILL to") == 2
    assert re.search(r"equal: all 10 counts of sentences, 11 words", printed)
    assert re.search(r"1:1 +superseded", printed), "the killed emit's attempt is over"
    assert re.search(r"1:2 +committed", printed), "its retry is the next attempt of the same txid"
    words = re.search(r"equal: all ([\d,]+) counts of word_count, ([\d,]+) words", printed)
    assert words
    return int(words[2].replace(",", ""))


def test_the_demo_shows_right_numbers_after_its_kills(shown: Shown) -> None:
    assert words_of(shown.printed) == 3


@pytest.mark.whole
def test_make_demo_from_zero_shows_right_numbers_after_two_kills(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "java").symlink_to(ROOT / ".txbatch" / "java")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TXBATCH", "AIRFLOW"))}
    environment |= {"TXBATCH_HOME": str(home), "PYTHONPATH": str(ROOT / "plugins")}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "txbatch.local.demo"], env=environment, capture_output=True, text=True, cwd=ROOT
        )
    finally:
        postgres.stop(home)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert words_of(done.stdout) > 1_000_000
