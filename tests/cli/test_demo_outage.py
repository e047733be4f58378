"""`txbatch demo`: what it shows, and that it touches nothing but what a demo has made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from cli_support import contents, job_of
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from txbatch import settings
from txbatch.cli.main import main
from txbatch.embedded import postgres
from txbatch.local import outage

Txbatch = Callable[..., Result]


@pytest.fixture
def of_a_user(txbatch: Txbatch, write_job: Callable[[str, str], str]) -> None:
    """Topologies of a user's own that are called as those of the demos."""
    for name in ("demo_outage", "outage", "sentences", "word_count"):
        assert txbatch("run", write_job(f"{name}.py", job_of(name, f"my_{name}")), "--until-idle").exit_code == 0


@pytest.fixture
def own_home(home: Path) -> Iterator[Path]:
    yield home
    postgres.stop(home)


@pytest.mark.whole
@pytest.mark.timeout(300)
def test_a_demo_touches_nothing_of_the_users(
    of_a_user: None, own_home: Path, engine: Engine, postgres_url: str, process: Callable[..., Popen[str]]
) -> None:
    before = contents(engine)
    staged = sorted(own_home.glob("staging/*"))
    with process("demo", "outage", TXBATCH_DATABASE_URL=postgres_url) as playing:
        _, told = playing.communicate()
    assert playing.returncode == 0, told
    assert "equal: every record of every partition is counted once" in told
    left_out = "of stream log, partition 03 is left out since txid 2"
    assert told.count(f"; {left_out}") == told.count(f"txbatch status: demo_outage: {left_out}") == 3
    assert told.count("report.completeness: 03: consumed_to 4, unreadable_since_txid 2") == 3
    assert "txid 5 is committed with attempt 5:1; of stream log, partition 03 is read again" in told
    assert contents(engine) == before
    assert sorted(own_home.glob("staging/*")) == staged

    def demo(*command: str) -> str:
        result = CliRunner().invoke(main, ["demo", *command])
        assert result.exit_code == 0, result.stderr
        return result.stdout

    assert demo("status").splitlines()[1].split()[:2] == ["demo_outage", "5"]
    assert len(demo("batches", "demo_outage").splitlines()) == 6
    assert "11111" in demo("query", "demo_outage", "00")


@pytest.mark.whole
@pytest.mark.timeout(300)
def test_the_outage_of_a_topic_is_named_at_each_step(own_home: Path, process: Callable[..., Popen[str]]) -> None:
    with process("demo", "outage", "--kafka") as playing:
        _, told = playing.communicate()
    assert playing.returncode == 0, told
    assert "equal: every record of every partition is counted once" in told
    hole = r"of stream log, partition outage/003@\w+ is left out since txid 2: a later batch reads all of it\n"
    assert re.findall(rf"txid (\d) is committed with attempt \d:\d; {hole}", told) == ["2", "3", "4"]
    assert len(re.findall(rf"txbatch status: demo_outage: {hole}", told)) == 3
    assert (
        len(re.findall(r"report.completeness: outage/003@\w+: consumed_to \d+, unreadable_since_txid 2\n", told)) == 3
    )
    filled = r"partition outage/003@\w+ is read again, with all that was left out since txid 2\n"
    assert re.search(rf"txid 5 is committed with attempt 5:1; of stream log, {filled}", told)


@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_only_a_yes_lets_it_into_the_database_that_is_set(
    own_home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, yes: list[str]
) -> None:
    played: list[settings.Settings] = []

    def play(config: settings.Settings, *, kafka: bool) -> list[Any]:
        played.append(config)
        return []

    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setattr(outage, "play", play)
    assert CliRunner().invoke(main, ["demo", "outage", *yes]).exit_code == 0
    (config,) = played
    assert (config.database_url == postgres_url) == bool(yes)
    assert yes or config.staging == f"file://{own_home}/demo/staging"
