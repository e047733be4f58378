"""The credentials of a source are nowhere to be read while Spark reads the source, nor afterwards; tests/spark looks at less."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cli_support import MAIN
from source_tables import FIELDS, READ, VARIABLE, role, shop_in
from spouts.kafka_broker import broker, login
from spouts.kafka_tls import Authority
from sqlalchemy import Engine, make_url, text

# Spark redacts what is called a password or a secret; this word it takes for any other.
NEUTRAL = "heron-umbrella-42"
JOB = """
topology = Topology("turnover")
sales = topology.new_stream("sales", PostgresSpout("shop.sale", {fields!r}, source="shop"))
sales.group_by("shop").persistent_aggregate(OpaqueState("turnover"), sales=Count(), amount=Sum("amount"))
"""
OF_TOPIC = """
topology = Topology("clicks")
clicks = topology.new_stream("clicks", KafkaSpout("clicks", "value string", source="shop"))
clicks.group_by("value").persistent_aggregate(OpaqueState("clicks"), clicks=Count())
"""
pytestmark = pytest.mark.timeout(300)


def with_secret(url: str) -> str:
    return make_url(url).set(password=NEUTRAL).render_as_string(hide_password=False)


def holds(told: bytes, secrets: list[str]) -> bool:
    """Return True if one of the secrets is in a text."""
    return any(secret.encode() in told for secret in secrets)


def watched(process: subprocess.Popen[str], secrets: list[str]) -> tuple[str, str, set[str]]:
    """What a process printed, and the command lines of all processes that had a secret in theirs."""
    shown = set[str]()
    while process.poll() is None:
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if holds(told := line.read_bytes(), secrets):
                    shown.add(told.decode())
        time.sleep(0.2)
    out, error = process.communicate()
    return out, error, shown


def everything(engine: Engine) -> str:
    """Each row of each table of the ledger, as text."""
    found = []
    with engine.connect() as connection:
        names = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname !~ '^(pg_|information_schema)'"
        for name in list(connection.execute(text(names)).scalars()):
            found += connection.exec_driver_sql(f"SELECT t::text FROM {name} t").scalars().all()
    return "\n".join(map(str, found))


@dataclass
class Spied:
    """A command that is watched, and all that the command leaves behind."""

    engine: Engine
    home: Path
    process: Callable[..., subprocess.Popen[str]]
    events: Path
    environment: dict[str, str]
    secrets: list[str] = field(default_factory=lambda: [NEUTRAL])

    def run(self, job: str, given: str) -> str:
        """Run a job with credentials that are found nowhere. Return what the run printed."""
        out, error, shown = watched(
            self.process("-v", "run", job, **self.environment, **{VARIABLE: given}), self.secrets
        )
        files = [file for folder in (self.home, self.events) for file in folder.rglob("*") if file.is_file()]
        assert any(file.is_relative_to(self.events) for file in files)
        assert [file for file in files if holds(file.read_bytes(), self.secrets)] == []
        assert shown == set()
        assert not holds((out + error + everything(self.engine)).encode(), self.secrets)
        return error


@pytest.fixture
def spied(
    engine: Engine, postgres_url: str, home: Path, process: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> Spied:
    events, conf = tmp_path / "events", tmp_path / "conf"
    events.mkdir()
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\nspark.eventLog.compress false\n"
    )
    environment = {"TXBATCH_DATABASE_URL": postgres_url, "SPARK_CONF_DIR": str(conf), "TXBATCH_HOME": str(home)}
    return Spied(engine, home, process, events, environment)


@pytest.mark.whole
@pytest.mark.parametrize("fails", [False, True], ids=["counted", "refused"])
def test_the_secret_of_a_table_is_nowhere(
    databases: Callable[[str], str], spied: Spied, write_job: Callable[[str, str], str], fails: bool
) -> None:
    with shop_in(databases("shop"), before=range(5)) as shop, role(shop.url, *READ) as url:
        shop.ask("ALTER TABLE shop.sale ALTER amount TYPE numeric")
        shop.insert(7, 8)
        if fails:
            shop.ask("UPDATE shop.sale SET amount = 'NaN' WHERE id = 7")
        error = spied.run(write_job("turnover.py", JOB.format(fields=FIELDS) + MAIN), with_secret(url))
    assert ("shop.sale, id=7, amount: 'NaN' is no decimal(12,2)" if fails else "committed") in error
    assert any(file.name == "error.json" for file in spied.home.rglob("*")) is fails
    assert "shop.sale@before" in everything(spied.engine)


@pytest.mark.whole
@pytest.mark.parametrize("fails", [False, True], ids=["counted", "refused"])
def test_the_secret_of_a_topic_is_nowhere(spied: Spied, write_job: Callable[[str, str], str], fails: bool) -> None:
    """Of a login over TLS with a certificate of the client: neither the password nor the client's key."""
    authority = Authority()
    key = authority.client()
    options = {"security.protocol": "SASL_SSL", "ssl.ca.pem": authority.pem, **key}
    spied.secrets.append(key["ssl.key.pem"].splitlines()[2])
    with broker(tls=authority.context(asks=True)) as kafka:
        (partition,) = kafka.create("clicks", 1)
        kafka.password = NEUTRAL
        partition.append(b"home", b"search", b"\xff" if fails else b"home")
        given = json.dumps(json.loads(login(kafka.brokers, NEUTRAL)) | options)
        error = spied.run(write_job("clicks.py", OF_TOPIC + MAIN), given)
    assert ("partition 0, offset 2" if fails else "committed") in error
    assert any(file.name == "error.json" for file in spied.home.rglob("*")) is fails
    assert "clicks/000@" in everything(spied.engine)
