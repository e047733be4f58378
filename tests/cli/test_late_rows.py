"""A row of a table that came after its interval was counted is told by status, plan and verify, and counted by a restate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from click.testing import Result
from source_intervals import DAY, Sales, sales_in
from source_tables import VARIABLE

from txbatch.core.errors import PartitionUnreadable
from txbatch.postgres.reading import ledger_reader
from txbatch.spouts.tables import late_rows

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
JOB = """
from source_intervals import FIELDS, read
class Rows(PostgresIntervalSpout):
    def batch(self, plan):
        return [(row["shop"],) for row in read(self, plan)]
topology = Topology("by_day")
stream = topology.new_stream("sales", Rows("shop.sale", FIELDS, time="sold_at", source="shop"{lookback}))
stream.project("shop").group_by("shop").persistent_aggregate(OpaqueState("by_day"), sales=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
NOON = DAY + timedelta(hours=12)
LATE = "  shop.sale, 2026-01-01T00:00:00+00:00 to 2026-01-02T00:00:00+00:00, txid 1: "


@pytest.fixture
def sales(databases: Callable[[str], str]) -> Iterator[Sales]:
    with sales_in(databases("shop")) as made:
        yield made


@pytest.fixture
def job(txbatch: Txbatch, write_job: WriteJob, sales: Sales) -> str:
    """Three days are counted: two rows, one row, none."""
    sales.sell(NOON, 3, 6)
    sales.sell(NOON + timedelta(days=1), 9)
    path = write_job("by_day.py", JOB.replace("{lookback}", ""))
    for number in (1, 2, 3):
        ran(txbatch("run", path, "--interval", f"2026-01-0{number}T00:00Z", f"2026-01-0{number + 1}T00:00Z"))
    return path


def ran(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def counted(txbatch: Txbatch) -> int:
    (row,) = json.loads(txbatch("query", "by_day", "s0", "--json").stdout)
    return int(row["sales"])


def test_rows_that_came_late_and_rows_that_went(txbatch: Txbatch, job: str, sales: Sales) -> None:
    for said in (txbatch("status"), txbatch("plan", job, "--interval", "2026-01-04T00:00Z", "2026-01-05T00:00Z")):
        ran(said)
        assert "differ" not in said.output
    sales.sell(NOON, 12)
    sales.sell(NOON + timedelta(hours=1), 15)
    sales.sell(NOON + timedelta(days=2), 18)
    for said in (txbatch("status"), txbatch("plan", job, "--interval", "2026-01-04T00:00Z", "2026-01-05T00:00Z")):
        ran(said)
        assert (
            "the rows of 2 intervals differ from what was counted; `txbatch restate by_day TXID` counts them"
            in said.output
        )
        assert LATE + "2 rows came late\n" in said.output
        assert "txid 3: 1 row came late\n" in said.output
    verified = txbatch("verify", job)
    assert verified.exit_code == 1, verified.output
    assert "LATE" in verified.output
    told = " ".join(verified.output.split())
    assert "2 records of stream 'sales' came late and are not counted" in told
    assert "shop.sale: 2 rows came late" in told
    assert 'txbatch restate by_day 1 --why "..."' in told
    assert counted(txbatch) == 3
    ran(txbatch("restate", job, "1", "--why", "late"))
    assert counted(txbatch) == 5
    said = txbatch("status")
    assert "the rows of 1 interval differ" in said.output
    assert "2 rows" not in said.output
    ran(txbatch("restate", job, "3", "--why", "late"))
    assert "differ" not in txbatch("status").output
    assert counted(txbatch) == 6
    ran(txbatch("verify", job))


def days(number: int, last: int | None = None) -> list[str]:
    return ["--interval", f"2026-01-{number:02}T00:00Z", f"2026-01-{(last or number) + 1:02}T00:00Z"]


def restates(txbatch: Txbatch) -> list[tuple[int, int, str]]:
    found = json.loads(txbatch("batches", "by_day", "--json").stdout)
    return sorted((row["txid"], row["position"], row["reason"]) for row in found if row["kind"] == "restate")


@pytest.mark.rule("R17", "R24")
def test_a_run_tells_late_rows_and_with_a_lookback_counts_them(
    txbatch: Txbatch, job: str, sales: Sales, write_job: WriteJob
) -> None:
    sales.sell(NOON, 12)
    sales.sell(NOON + timedelta(days=1), 15)
    told = 'by_day: late for txid 1: 1 record in shop.sale; `txbatch restate by_day 1 --why "..."` counts them'
    assert told in ran(txbatch("run", job, *days(4)))
    assert restates(txbatch) == []
    write_job("by_day.py", JOB.replace("{lookback}", ', lookback="3 days"'))
    said = ran(txbatch("run", job, *days(5)))
    assert "late for" not in said
    assert restates(txbatch) == [(6, 2, "lookback: 1 record in shop.sale")], "the first day is further back"
    sales.shop.ask("DELETE FROM shop.sale WHERE id = 9")
    sales.sell(NOON + timedelta(days=1), 18)
    sales.sell(NOON + timedelta(days=2), 21, 24)
    said = ran(txbatch("run", job, *days(6, 7), "--cron", "0 0 * * *"))
    assert "late for txid 3" not in said
    assert restates(txbatch)[1:] == [(9, 3, "lookback: 2 records in shop.sale")]
    write_job("by_day.py", JOB.replace("{lookback}", ', lookback="30 days"'))
    said = ran(txbatch("run", job, *days(8)))
    changed = 'by_day: changed for txid 2: 1 row in shop.sale; `txbatch restate by_day 2 --why "..."` counts them'
    assert f"{changed} as they are now" in said, "as after an UPDATE: a row went, and a row came"
    assert restates(txbatch)[2:] == [(11, 1, "lookback: 1 record in shop.sale")]
    ran(txbatch("run", job, *days(8)))
    assert len(restates(txbatch)) == 3


def test_a_table_that_is_away_after_the_commit_fails_no_run(
    txbatch: Txbatch, job: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object) -> None:
        raise PartitionUnreadable("it does not answer")

    monkeypatch.setattr("txbatch.spouts.postgres_interval.counts", away)
    ran(txbatch("run", job, *days(4)))
    assert any("late rows of shop.sale were not looked for: " in line for line in caplog.messages)


def test_another_server_counts_nothing_again(
    txbatch: Txbatch, job: str, sales: Sales, databases: Callable[[str], str]
) -> None:
    """As if the source led to a copy for tests: fewer rows would take the place of what was counted."""
    with sales_in(databases("staging")) as staging:
        staging.sell(NOON, 3)
        said = txbatch("restate", job, "1", "--why", "late")
        assert said.exit_code != 0, said.output
        assert "TX221" in said.output
    assert counted(txbatch) == 3
    ran(txbatch("restate", job, "1", "--why", "late"))


def test_a_row_that_went(txbatch: Txbatch, job: str, sales: Sales) -> None:
    sales.shop.ask("DELETE FROM shop.sale WHERE id = 3")
    sales.shop.ask(f"UPDATE shop.sale SET sold_at = '{NOON}' WHERE id = 9")
    (row,) = json.loads(txbatch("status", "by_day", "--json").stdout)
    changes = {each["txid"]: each["change"] for each in row["changed"]}
    assert changes == {2: "1 row is gone"}  # of the first day one went and one came: as many
    sales.shop.ask("DELETE FROM shop.sale WHERE id = 6")
    assert LATE + "1 row is gone\n" in txbatch("status").output
    verified = txbatch("verify", job)
    assert verified.exit_code == 1
    told = " ".join(verified.output.split())
    assert "now there are" in told or "others than" in told
    assert "shop.sale: 1 row is gone" in told
    ran(txbatch("restate", job, "1", "--why", "mended"))
    ran(txbatch("restate", job, "2", "--why", "mended"))
    assert "differ" not in txbatch("status").output
    ran(txbatch("verify", job))
    assert counted(txbatch) == 1


def test_a_table_that_cannot_be_looked_at(
    txbatch: Txbatch, job: str, sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "postgresql://reader:heron@127.0.0.1:1/shop")
    said = ran(txbatch("status"))
    assert "by_day: shop.sale was not looked at: source 'shop' does not answer (Connection refused); try again" in said
    assert "heron" not in said
    with monkeypatch.context() as unset:
        unset.delenv(VARIABLE)
        assert "shop.sale was not looked at: source 'shop' is not known here" in ran(txbatch("status"))


def test_another_table_is_not_compared(txbatch: Txbatch, job: str, sales: Sales) -> None:
    sales.shop.ask("CREATE TABLE shop.other (LIKE shop.sale INCLUDING ALL)")
    sales.shop.ask("DROP TABLE shop.sale")
    sales.shop.ask("ALTER TABLE shop.other RENAME TO sale")
    assert "is another table, or on another server, than when it was counted" in ran(txbatch("status"))


def test_intervals_that_status_does_not_look_at_are_told(
    txbatch: Txbatch, job: str, sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_rows, "LOOKS_MAX", 2)
    sales.sell(NOON, 12)  # into the first of three days
    said = ran(txbatch("status"))
    assert (
        "shop.sale was looked at in 2 of 3 intervals, the newest ones of this server; `txbatch verify by_day` reads all"
        in said
    )
    assert "came late" not in said
    assert "1 records of stream 'sales' came late and are not counted" in txbatch("verify", job).output
    monkeypatch.setattr(late_rows, "LOOKS_MAX", 3)
    assert "was looked at" not in ran(txbatch("status"))
    monkeypatch.setattr(ledger_reader, "COUNTED_BYTES_MAX", 1)
    assert "shop.sale was looked at in 1 of 3 intervals" in ran(txbatch("status"))
