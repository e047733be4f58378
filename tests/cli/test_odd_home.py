"""A home whose path has what a URI would have to encode: everything is below it, nothing beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from txbatch import settings


@pytest.mark.timeout(300)
def test_a_batch_is_staged_in_a_home_with_blanks_and_umlauts(
    postgres_url: str, process: Callable[..., Popen[str]], write_job: Callable[[str, str], str], tmp_path: Path
) -> None:
    home = tmp_path / "around" / "ho me Ü#1 100%20"
    home.mkdir(parents=True)
    (home / "java").symlink_to(settings.project_root() / ".txbatch" / "java")
    with process(
        *("run", "jobs/sentences.py", "--json"), TXBATCH_HOME=str(home), TXBATCH_DATABASE_URL=postgres_url
    ) as started:
        out, err = started.communicate()
    assert started.returncode == 0, err
    assert [(row["txid"], row["status"], row["records"]) for row in json.loads(out)] == [(1, "committed", 1)]
    assert list((tmp_path / "around").iterdir()) == [home]
    assert (home / "staging").is_dir()


def test_staging_is_below_the_home_as_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TXBATCH_STAGING", raising=False)
    monkeypatch.setenv("TXBATCH_DATABASE_URL", "postgresql+psycopg2://nobody@/none")
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "ä b#%20"))
    assert settings.resolve().staging == f"file://{tmp_path}/ä b#%20/staging"
