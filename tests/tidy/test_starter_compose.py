"""The compose file of `txbatch init`: all that it and its comment name is there, and fits together."""

import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from click import Group
from sqlalchemy import make_url

from txbatch.cli.main import main

FILE = Path(__file__).parents[2] / "starter" / "docker-compose.yml"
TEXT = FILE.read_text(encoding="utf-8")
COMMENT = [line.removeprefix("#   ") for line in TEXT.splitlines() if line.startswith("#   ")]
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def postgres() -> dict[str, Any]:
    """The one service, with its defaults filled in."""
    defaults = VARIABLE.sub(lambda found: found[3] if found[2] == "-" else found[0], TEXT)
    content = yaml.safe_load(defaults)
    assert (set(content), set(content["services"])) == ({"services", "volumes"}, {"postgres"})
    service: dict[str, Any] = content["services"]["postgres"]
    assert {volume.partition(":")[0] for volume in service["volumes"]} == set(content["volumes"])  # none is a folder's
    return service


def test_the_url_of_the_comment_is_that_of_the_service() -> None:
    [export] = [line for line in COMMENT if "TXBATCH_DATABASE_URL" in line]
    url, service = make_url(export.partition("=")[2]), postgres()
    environment, [port] = service["environment"], service["ports"]
    assert url.drivername == "postgresql+psycopg2"
    assert (url.username, url.database) == (environment["POSTGRES_USER"], environment["POSTGRES_DB"])
    assert f"{url.host}:{url.port}:5432" == port
    assert environment["POSTGRES_USER"] == service["healthcheck"]["test"][-1]


def test_a_variable_that_must_be_set_is_exported_in_the_comment_before_it_is_used() -> None:
    needed = [name for name, kind, _ in VARIABLE.findall(TEXT) if kind != "-"]
    assert needed == ["TXBATCH_PASSWORD"]
    assert COMMENT[0] == "export TXBATCH_PASSWORD=..."
    assert "$TXBATCH_PASSWORD" in COMMENT[2]


def test_each_command_of_the_comment_is_one() -> None:
    commands = [line.split() for line in COMMENT if not line.startswith("export ")]
    assert commands[0] == ["docker", "compose", "up", "-d"]
    assert isinstance(main, Group)
    assert all(program == "txbatch" and name in main.commands for program, name in commands[1:])


def test_the_data_lies_where_the_image_keeps_it() -> None:
    """From 18 on the image keeps each version's data in a folder of its own below; before, a volume there stays empty."""
    service = postgres()
    [version] = re.findall(r"^postgres:(\d+)-", service["image"])
    assert int(version) >= 18
    assert service["volumes"] == ["postgres:/var/lib/postgresql"]
