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
    named = {volume.partition(":")[0] for volume in service["volumes"]}
    assert named - {"./postgres"} == set(content["volumes"])  # data is in no folder
    return service


def test_the_urls_of_the_comment_are_of_the_service_and_its_roles() -> None:
    urls = [make_url(line.partition("=")[2]) for line in COMMENT if "TXBATCH_DATABASE_URL" in line]
    service = postgres()
    [port] = service["ports"]
    assert [url.username for url in urls] == ["txbatch_owner", "txbatch"]
    for url in urls:
        assert (url.drivername, url.database) == ("postgresql+psycopg2", service["environment"]["POSTGRES_DB"])
        assert f"{url.host}:{url.port}:5432" == port
        assert str(url.password).removeprefix("$") in service["environment"]


def test_each_password_that_must_be_set_is_made_by_make_passwords_and_used() -> None:
    needed = [name for name, kind, _ in VARIABLE.findall(TEXT) if kind != "-"]
    makefile = (FILE.parent / "Makefile").read_text()
    [made] = re.findall(r"for name in ([A-Z_ ]+); do", makefile)
    assert made.split() == needed
    assert COMMENT[0] == "make passwords"
    given = set(re.findall(r"^\\getenv \w+ (\w+)$", (FILE.parent / "postgres" / "20-passwords.sql").read_text(), re.M))
    assert given == {*needed} - {"POSTGRES_PASSWORD"}


def test_it_is_bounded_and_watched_as_the_stack_is() -> None:
    stack = yaml.safe_load((FILE.parents[1] / "docker-compose.yml").read_text())["services"]
    service = postgres()
    for name in ("shm_size", "pids_limit", "logging", "stop_grace_period", "security_opt", "cap_drop", "cap_add"):
        assert service[name] == stack["postgres"][name], name
    assert service["healthcheck"]["test"] == stack["postgres"]["healthcheck"]["test"]
    assert service["mem_limit"] == stack["postgres"]["mem_limit"]
    for name, each in stack.items():
        assert {"mem_limit", "pids_limit", "logging"} <= set(each), name
        # Docker leaves a volume without a name behind.
        assert not [volume for volume in each.get("volumes", ()) if ":" not in volume], name


def test_each_command_of_the_comment_is_one() -> None:
    commands = [line.split() for line in COMMENT if not line.startswith("export ")]
    assert commands[:3] == [["make", "passwords"], ["docker", "compose", "up", "-d"], [".", "./.env"]]
    assert isinstance(main, Group)
    assert all(program == "txbatch" and name in main.commands for program, name, *_ in commands[3:])


def test_the_data_lies_where_the_image_keeps_it() -> None:
    """From 18 on the image keeps each version's data in a folder of its own below; before, a volume there stays empty."""
    service = postgres()
    [version] = re.findall(r"^postgres:(\d+)-", service["image"])
    assert int(version) >= 18
    assert service["volumes"][0] == "postgres:/var/lib/postgresql"
