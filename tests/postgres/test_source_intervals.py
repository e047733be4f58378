"""A table is read by time: as one snapshot sees the interval, in each attempt, whatever commits later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from source_intervals import DAY, TABLE, Sales, day, hours, sales_in
from source_tables import READ, known, role, shop_in, transaction

from txbatch import Interval, PostgresIntervalSpout
from txbatch.core.errors import (
    BadRecord,
    InvalidOption,
    InvalidSchedule,
    NoInterval,
    OtherHistory,
    SourceBehind,
    SourceUnfit,
    UnsafeSource,
)

Databases = Callable[[str], str]
NOON = DAY + timedelta(hours=12)


@pytest.fixture
def sales(databases: Databases) -> Iterator[Sales]:
    with sales_in(databases("shop")) as made:
        yield made


def test_an_interval_has_its_start_and_not_its_end(sales: Sales) -> None:
    sales.sell(DAY - timedelta(microseconds=1), 1)
    sales.sell(DAY, 2)
    sales.sell(DAY + timedelta(days=1, microseconds=-1), 3)
    sales.sell(DAY + timedelta(days=1), 4)
    before, this, after, empty = sales.plan(day(-1), day(0), day(1), day(7))
    assert [sales.ids(plan) for plan in (before, this, after, empty)] == [[1], [2, 3], [4], []]
    assert [row["sold_at"] for row in sales.read(this)] == [DAY, DAY + timedelta(days=1, microseconds=-1)]
    assert this["interval"] == ["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"]


def test_what_commits_later_is_read_by_no_attempt_and_planned_anew(sales: Sales) -> None:
    """What `WHERE sold_at >= data_interval_start` loses."""
    late = transaction(sales.shop.url)
    late.cursor().execute(f"INSERT INTO shop.sale VALUES (1, 'a', 1, '{NOON}')")
    sales.sell(NOON, 2)
    (plan,) = sales.plan(day(0))
    sales.sell(NOON, 3)
    late.commit()
    late.close()
    assert sales.ids(plan) == [2]
    (again,) = sales.plan(day(0), last=plan)
    assert sales.ids(again) == [1, 2, 3]
    assert sales.ids(plan) == [2]


def test_one_look_is_one_snapshot_and_one_scan(sales: Sales) -> None:
    for number in range(10):
        sales.sell(NOON + timedelta(days=number), *range(10 * number, 10 * number + number + 1))
    plans = sales.plan(*(day(number) for number in range(10)))
    assert len({plan["end"] for plan in plans}) == 1
    spout = sales.spout()
    together = spout.fused(plans[::-1])
    assert len(together["parts"]) == 1
    assert sales.ids(together) == [id_ for plan in plans for id_ in sales.ids(plan)]
    apart = spout.fused([plans[2], plans[7], plans[6]])
    assert [part["interval"] for part in apart["parts"]] == [
        plans[2]["interval"],
        [plans[6]["interval"][0], plans[7]["interval"][1]],
    ]
    assert sales.ids(apart) == [id_ for plan in (plans[2], plans[6], plans[7]) for id_ in sales.ids(plan)]


def test_intervals_as_of_several_snapshots_go_together(sales: Sales) -> None:
    sales.sell(NOON, 1)
    (first,) = sales.plan(day(0))
    sales.sell(NOON, 2)
    sales.sell(NOON + timedelta(days=1), 3)
    (second,) = sales.plan(day(1))
    together = sales.spout().fused([first, second])
    assert sales.ids(together) == [1, 3]


def test_a_row_that_went_is_missed(sales: Sales) -> None:
    sales.sell(NOON, 1, 2)
    (plan,) = sales.plan(day(0))
    sales.shop.ask("UPDATE shop.sale SET amount = 7 WHERE id = 1")
    assert sales.ids(plan) == [1, 2]  # as many; `verify` tells that they are others
    sales.shop.ask("UPDATE shop.sale SET sold_at = sold_at + interval '1 day' WHERE id = 2")
    with pytest.raises(AssertionError):
        sales.read(plan)


@pytest.mark.parametrize(
    ("zone", "around"),
    [
        ("Europe/Oslo", "2026-03-29"),
        ("Europe/Oslo", "2026-10-25"),
        ("Pacific/Apia", "2011-12-30"),
        ("Etc/GMT+12", "2026-01-01"),
    ],
)
def test_a_time_without_a_zone_lies_in_one_interval(databases: Databases, zone: str, around: str) -> None:
    """Also where clocks go forward, where an hour comes twice, and where a zone has left out a day."""
    with sales_in(databases("shop"), "timestamp", timezone=zone) as sales:
        local = datetime.fromisoformat(around) - timedelta(hours=6)
        for number in range(40):
            sales.sell(local + timedelta(minutes=30 * number), number)
        start = datetime.fromisoformat(around).replace(tzinfo=UTC) - timedelta(hours=60)
        plans = sales.plan(*hours(start, 120))
        found = [(plan, row) for plan in plans if plan["records"] for row in sales.read(plan)]
        assert sorted(row["id"] for _, row in found) == [*range(40)]
        for plan, row in found:
            first, last = map(datetime.fromisoformat, plan["interval"])
            assert first <= row["sold_at"] < last


def test_a_day_lies_in_whole_days_of_utc(databases: Databases) -> None:
    fields = "id bigint, shop string, amount decimal(12,2), sold_at date"
    with sales_in(databases("shop"), "date", fields) as sales:
        sales.sell("2026-01-01", 1)
        sales.sell("2026-01-02", 2)
        assert [sales.ids(plan) for plan in sales.plan(day(0), day(1), day(0, 2))] == [[1], [2], [1, 2]]
        with pytest.raises(InvalidSchedule, match="PostgresIntervalSpout: 'sold_at' is a date, which lies in"):
            sales.plan(*hours(DAY, 1))


def test_any_times_lie_in_one_interval_each(sales: Sales) -> None:
    random = Random(7)
    for number in range(100):
        sales.sell(DAY + timedelta(microseconds=random.randrange(5 * 86_400_000_000)), number)
    cuts = sorted({0, 5 * 86_400, *(random.randrange(5 * 86_400) for _ in range(20))})
    asked = [Interval(DAY + timedelta(seconds=first), DAY + timedelta(seconds=last)) for first, last in pairwise(cuts)]
    plans = sales.plan(*asked)
    assert sorted(id_ for plan in plans for id_ in sales.ids(plan)) == [*range(100)]
    some = random.sample(plans, 7)
    assert sales.ids(sales.spout().fused(some)) == sorted(id_ for plan in some for id_ in sales.ids(plan))


def test_many_rows_are_read_by_blocks_of_partitions(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbatch.spouts.tables.stretches.ROWS_PER_TASK", 100)
    table = (
        "CREATE SCHEMA shop; CREATE TABLE shop.sale (id bigint, shop text, amount numeric, sold_at timestamptz NOT NULL) "
        "PARTITION BY RANGE (sold_at); "
        "CREATE TABLE shop.a PARTITION OF shop.sale FOR VALUES FROM ('2026-01-01Z') TO ('2026-01-02Z'); "
        "CREATE TABLE shop.b PARTITION OF shop.sale DEFAULT"
    )
    with shop_in(databases("shop"), table) as shop:
        sales = Sales(shop)
        shop.ask(
            "INSERT INTO shop.sale SELECT n, 's', 1, timestamptz '2026-01-01Z' + n * interval '1 minute' "
            "FROM generate_series(0, 2879) n"
        )
        (both, half) = sales.plan(day(0, 2), Interval(NOON, NOON + timedelta(days=1)))
        assert [row["id"] for row in sales.read(both, cores=3)] == [*range(2880)]
        assert [row["id"] for row in sales.read(half, cores=3)] == [*range(720, 2160)]


@pytest.mark.parametrize("time", ["infinity", "-infinity", "1970-01-01 00:20:26+00", "2100-01-01 00:00:00+00"])
def test_a_row_without_a_plausible_time_is_in_no_interval(sales: Sales, time: str) -> None:
    sales.sell(NOON, 1)
    sales.sell(time, 2)
    with pytest.raises(
        BadRecord, match=r"is the sold_at of a row, not between 1971-01-01 and 2100-01-01; mend the row"
    ):
        sales.plan(day(0))


def test_other_times_may_be_plausible(sales: Sales) -> None:
    sales.sell("1814-05-17 12:00:00+00", 1)
    of = Interval(datetime(1814, 5, 17, tzinfo=UTC), datetime(1814, 5, 18, tzinfo=UTC))
    (plan,) = sales.plan(of, plausible=("1800-01-01", "2100-01-01"))
    assert plan["records"] == 1


def test_a_row_may_not_have_no_time(sales: Sales) -> None:
    sales.shop.ask("ALTER TABLE shop.sale ALTER sold_at DROP NOT NULL")
    with pytest.raises(SourceUnfit, match=r'may be null.*ALTER TABLE shop.sale ALTER "sold_at" SET NOT NULL'):
        sales.plan(day(0))


def test_a_row_without_a_time_is_told_where_the_constraint_was_not_validated(sales: Sales) -> None:
    """PostgreSQL 18 has constraints that hold for new rows alone."""
    ((version,),) = sales.shop.ask("SELECT current_setting('server_version_num')::int")
    if version < 180000:
        pytest.skip("the server has no such constraint")
    sales.shop.ask("ALTER TABLE shop.sale ALTER sold_at DROP NOT NULL")
    sales.shop.ask("INSERT INTO shop.sale (id) VALUES (1)")
    sales.shop.ask("ALTER TABLE shop.sale ADD CONSTRAINT timed NOT NULL sold_at NOT VALID")
    with pytest.raises(BadRecord, match="null is the sold_at of a row"):
        sales.plan(day(0))


def test_a_table_that_is_not_prepared_or_not_to_be_read_is_refused(sales: Sales) -> None:
    sales.shop.ask("DROP TRIGGER txbatch_xact_insert ON shop.sale")
    with pytest.raises(SourceUnfit, match="no trigger guards xact"):
        sales.plan(day(0))
    sales.shop.prepare()
    with (
        role(sales.shop.url, READ[0]) as url,
        known(url),
        pytest.raises(SourceUnfit, match="may not read it: GRANT it USAGE"),
    ):
        sales.plan(day(0))


def test_a_role_that_may_only_read_is_enough_and_one_that_writes_a_ledger_is_too_much(sales: Sales) -> None:
    sales.sell(NOON, 1)
    with role(sales.shop.url, *READ) as url, known(url):
        assert [sales.ids(plan) for plan in sales.plan(day(0))] == [[1]]
    sales.shop.ask("CREATE SCHEMA txbatch; CREATE TABLE txbatch.batch (txid int)")
    with pytest.raises(UnsafeSource, match="may write in the schema 'txbatch'"):
        sales.plan(day(0))


def test_another_history_is_refused(sales: Sales) -> None:
    sales.sell(NOON, 1)
    (plan,) = sales.plan(day(0))
    ahead = {**plan, "end": "999999999:999999999:"}
    for refused in (lambda: sales.plan(day(1), last=ahead), lambda: sales.spout().check_plan(ahead)):
        with pytest.raises(SourceBehind):
            refused()
    other = {**plan, "history": ["7", *plan["history"][1:]]}
    with pytest.raises(OtherHistory, match=r"on another server than what was counted.*a physical copy") as error:
        sales.spout().check_plan(other)
    token = str(error.value).rsplit("accept=", 1)[1].strip("'")
    sales.spout(accept=token).check_plan(other)
    sales.shop.ask("DROP SCHEMA shop CASCADE")
    sales.shop.ask(TABLE.format("timestamptz"))
    sales.shop.prepare()
    with pytest.raises(OtherHistory, match="another table than"):
        sales.plan(day(1), last=plan)


@pytest.mark.parametrize("zone", ["UTC+2", "+02:00", "2", "FOO+30", "<x>-3"])
def test_a_zone_whose_sign_may_be_meant_the_other_way_is_refused(zone: str) -> None:
    """PostgreSQL takes `UTC+2` for two hours west of UTC."""
    fields = "id bigint, shop string, sold_at timestamp"
    with pytest.raises(InvalidOption, match="is no name of a time zone"):
        PostgresIntervalSpout("shop.sale", fields, time="sold_at", source="shop", timezone=zone)
    for name in ("Europe/Oslo", "EST5EDT", "Etc/GMT-2", "UTC", None):
        PostgresIntervalSpout("shop.sale", fields, time="sold_at", source="shop", timezone=name)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"time": "shop"}, "time='shop' is no timestamp and no date among the fields"),
        ({"time": "at"}, "time='at' is no timestamp"),
        ({"plausible": ("2100-01-01", "1971-01-01")}, "is no pair of dates such as"),
        ({"plausible": "1971"}, "is no pair of dates such as"),
    ],
)
def test_wrong_options_are_told_where_it_is_defined(options: Any, told: str) -> None:
    fields = "id bigint, shop string, sold_at timestamp"
    with pytest.raises(InvalidOption, match=told):
        PostgresIntervalSpout("shop.sale", fields, **{"time": "sold_at", "source": "shop", **options})


def test_a_run_without_an_interval_is_refused(sales: Sales) -> None:
    with pytest.raises(NoInterval):
        sales.spout().coordinator().initialize_transaction(1, None, None)
