"""What supervises `txbatch follow` in docs/run/follow.md: the unit says what systemd knows, the service fits the stack."""

from __future__ import annotations

import re
import shlex
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from click import Context, Group

from txbatch.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "run" / "follow.md").read_text(encoding="utf-8")
STACK: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))


def block(language: str) -> str:
    """The one block of a language on the page."""
    [found] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def check_follows(command: list[str]) -> None:
    """A call of `txbatch follow` of a job of this project; the parser takes each of its options."""
    program, name, *arguments = command
    assert isinstance(main, Group)
    follow = main.get_command(Context(main), name)
    assert follow is not None
    with follow.make_context(name, [*arguments]):
        assert (Path(program).name, name) == ("txbatch", "follow")
    assert (ROOT / arguments[0]).is_file()


def test_the_unit_lets_a_batch_end_and_starts_again_what_failed() -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(block("ini"))
    service = unit["Service"]
    check_follows(shlex.split(service["ExecStart"]))
    assert (service["KillMode"], service["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == (
        "mixed",
        "on-failure",
        "0",
    )
    assert int(service["TimeoutStopSec"]) >= 60


def test_the_service_of_compose_has_what_the_scheduler_has() -> None:
    document = yaml.safe_load(block("yaml"))
    [(name, service)] = document["services"].items()
    scheduler = STACK["services"]["scheduler"]
    check_follows(shlex.split(service["command"]))
    assert service["hostname"] == service["environment"]["SPARK_LOCAL_HOSTNAME"] == name
    assert name not in STACK["services"]
    for what in ("image", "networks", "security_opt", "cap_drop", "read_only", "logging"):
        assert service[what] == scheduler[what], what
    assert service["pids_limit"] == STACK["x-confined"]["pids_limit"]  # of one driver; the scheduler has several
    assert set(service["env_file"]) <= set(scheduler["env_file"])
    assert set(service["depends_on"]) <= set(STACK["services"])
    targets = {
        volume.split(":")[-2] if volume.endswith(":ro") else volume.split(":")[-1] for volume in service["volumes"]
    }
    assert {"/tmp", "/var/lib/txbatch/staging", "/data"} == targets
    named = {volume.partition(":")[0] for volume in service["volumes"] if not volume.startswith(".")}
    assert named == {*document["volumes"], "staging"}
