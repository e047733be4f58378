"""What is asked each time costs the same however long a history is: statements read what an index finds, and no more."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from postgres_bench import Bench, words
from sizes import some_of
from sqlalchemy import Engine, event, text
from support import LogSpout, word_count
from ui.seeded import DAYS, FAILING, RESTATED, TAG, WAITING, Seeding, day, flights, of_day, seed, seed_many

from txbatch import Count, Max
from txbatch.core.batch.transaction import Batch, Restate, Run
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import UnknownName
from txbatch.core.protocol import coordinator
from txbatch.postgres.database.queries import statements
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.reading.ledger_reader import LedgerReader

MANY = some_of(20_000, 100_000)
UNION_OF_COUNTED = "SELECT range_agg(tstzrange(starts, ends)) FROM txbatch.counted"
UNION_OF_BATCHES = "SELECT range_agg(data_interval) FROM txbatch.batch WHERE status = 'committed' AND kind <> 'restate'"
RECORDS = "SELECT COALESCE(sum(records) FILTER (WHERE replaced_by IS NULL), 0)::bigint FROM txbatch.batch"
# What each asks for, and the most buffers that it may touch, however many batches there are.
ASKED: dict[str, tuple[str, dict[str, Any], int]] = {
    "the newest batches": ("batches", {"topology": "log", "limit": 60}, 2_000),
    "the batches of a run": ("batches_of_run", {"topology": "log", "run_id": "run 777"}, 100),
    "the status of all": ("status", {"topology": None}, 500),
    "a topology that is known": ("reported_topology", {"topology": "log"}, 10),
    "a state that is known": ("reported_state", {"state": "log"}, 100),
    "what can be asked of the past": ("askable", {"state": "log"}, 100),
    "the end of what is whole": ("whole_to", {"topology": "hours", "reached": None}, 50),
    "where windows wait": ("windows_wait", {"topology": None}, 500),
    "what is not counted": ("gaps", {"topology": "hours"}, 200),
    "the versions of positions": ("versions_of_positions", {"topology": "log", "positions": [777]}, 20),
    "the version that counts": ("counted_versions", {"topology": "log", "txids": [777]}, 50),
    "what a batch read": ("read_by", {"topology": "log", "txids": [777]}, 20),
    "what is listed no more": ("vanished", {"topology": None}, 200),
    "what states missed": ("missed", {"topology": None}, 500),
    "who waits": ("waiting", {"topology": None}, 100),
    "what fails": ("failing", {"topology": None}, 100),
    "what is counted again": ("restating", {"topology": None}, 100),
    "what is ahead": ("ahead", {"topology": None}, 200),
    "what was left out": ("left_out", {"topology": None, "named": 5}, 100),
    "what was given up": ("given_up", {"topology": None, "named": 5}, 100),
    "files counted": ("counted_ranges", {"topology": None, "limit": 100_000}, 100),
    "intervals of files": ("counted_intervals", {"topology": None, "spout": "IntervalSpout", "bytes": 4_000_000}, 20),
    "what came late": ("found_late", {"topology": "hours", "most": 100}, 20),
}
EACH_TENTH = "WHERE topology = 'log' AND txid % 10 = 0 AND status <> 'aborted'"
LAST = (
    "SELECT txid, kind FROM txbatch.batch WHERE topology = 'log' AND status <> 'aborted' AND kind <> 'restate' "
    "ORDER BY txid DESC LIMIT {}"
)
VIEWS = {
    "SELECT * FROM report.topologies ORDER BY topology": 1_000,
    "SELECT * FROM report.exceptional_txids WHERE topology = 'log' ORDER BY txid DESC LIMIT 2000": 300,
    # Whoever counts all batches reads each once, and looks nothing up for it.
    "SELECT count(*) FROM report.batches WHERE topology = 'log' AND txid > 10": MANY // 8,
    "SELECT * FROM report.completeness WHERE topology = 'log'": 500,
    "SELECT * FROM report.completeness WHERE topology = 'hours'": 500,
}


@pytest.fixture
def many(engine: Engine) -> Engine:
    seed_many(engine, MANY)
    return engine


def buffers(engine: Engine, statement: str, **given: Any) -> int:
    """Return how many buffers a statement touches, found or read."""
    with engine.connect() as connection:
        (plan,) = connection.execute(text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"), given).scalar_one()
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


def test_what_is_asked_each_time_costs_the_same_at_any_length(many: Engine) -> None:
    touched = {asked: buffers(many, statements()[name], **given) for asked, (name, given, _) in ASKED.items()}
    touched |= {view: buffers(many, view) for view in VIEWS}
    most = {asked: limit for asked, (*_, limit) in ASKED.items()} | VIEWS
    assert {asked: number for asked, number in touched.items() if number > most[asked]} == {}, touched


def test_a_long_history_is_told_as_it_is(many: Engine) -> None:
    rows = {row["topology"]: row for row in LedgerReader(many).status()}
    aborted = MANY // 997
    for name in ("hours", "log"):
        row = rows[name]
        assert (row["committed"], row["aborted"], row["in_flight"]) == (MANY - aborted, aborted, 0)
        assert row["records"] == 10 * (MANY - aborted)
    assert rows["hours"]["gaps"] == len(rows["hours"]["uncounted"]) > MANY // 100
    (found,) = LedgerReader(many).batches_of_run("log", "run 777")
    assert found["txid"] == 777


def test_status_touches_as_few_buffers_however_long_a_history_is(many: Engine) -> None:
    """All statements of `txbatch status` together, without the catalog that a session reads to plan them."""
    sent: list[tuple[str, Any]] = []

    @event.listens_for(many, "before_cursor_execute")
    def noted(_: Any, cursor: Any, statement: str, given: Any, *__: Any) -> None:
        sent.append((statement, given))

    reader = LedgerReader(many)
    reader.status()
    reader.counted()
    reader.counted_tables()
    for topology in ("hours", "log"):
        reader.late(topology)
        reader.half_committed(topology)
    asked = [(statement, given) for statement, given in sent if "txbatch." in statement or "report." in statement]
    touched = [buffers(many, escaped(many, *each)) for each in asked]
    assert sum(touched) < 1_500, touched
    assert len(asked) < 25


def test_of_many_batches_that_were_given_up_status_tells_those_of_the_last_thousand(many: Engine) -> None:
    """A source that loses records each day for years: the batches above each of them are not looked through."""
    with many.begin() as connection:
        connection.execute(text(f"UPDATE txbatch.batch SET kind = 'skip', committed_fence = NULL {EACH_TENTH}"))
        connection.execute(
            text(f"UPDATE txbatch.partition SET status = 'skipped', records = NULL, fingerprint = NULL {EACH_TENTH}")
        )
        connection.execute(text("ANALYZE txbatch.batch, txbatch.partition"))
    name, given, _ = ASKED["what was given up"]
    assert buffers(many, statements()[name], **given) < 3_000
    (row,) = LedgerReader(many).status("log")
    (told,) = row["given_up"]
    ((known,),) = days_of(many, "SELECT array_agg(txid) FROM (" + LAST.format(1_000) + ") n WHERE kind = 'skip'")
    assert (sorted(told["txids"]), told["partitions"]) == (sorted(known), ["a", "b"])
    assert 90 < len(known) < 110


def escaped(engine: Engine, statement: str, given: Any) -> str:
    """Return a statement with its values, as `text` takes the statement."""
    with engine.connect() as connection:
        whole: bytes = connection.connection.cursor().mogrify(statement, given)
    return whole.decode().replace(":", r"\:")


# What each state has counted and missed, by a look at all batches.
BY_ALL_BATCHES = """
SELECT s.state, min(c.first_txid) FILTER (WHERE counted), max(c.last_txid) FILTER (WHERE counted),
       COALESCE(sum(txids) FILTER (WHERE NOT counted), 0)::bigint,
       string_agg(CASE WHEN first_txid = last_txid THEN first_txid::text ELSE first_txid || '-' || last_txid END, ', '
                  ORDER BY first_txid) FILTER (WHERE NOT counted)
  FROM txbatch.state s LEFT JOIN LATERAL (
       SELECT counted, min(txid) AS first_txid, max(txid) AS last_txid, count(*) AS txids
         FROM (SELECT txid, counted, row_number() OVER (ORDER BY txid)
                                   - row_number() OVER (PARTITION BY counted ORDER BY txid) AS series
                 FROM (SELECT txid, keys -> s.state IS NOT NULL AS counted FROM txbatch.batch b
                        WHERE b.topology = s.topology AND status = 'committed' AND kind = 'ordinary') each) numbered
        GROUP BY counted, series) c ON true GROUP BY s.state ORDER BY s.state
"""
OF_STATES = """
INSERT INTO txbatch.batch (topology, txid, position, kind, key, metadata, lease_until, status, committed_at, committed_fence,
                           fence, token, records, keys, reason, aborted_at)
VALUES ('log', :txid, CASE WHEN :kind = 'restate' THEN 1 ELSE :txid END, :kind, 'k', '{}', now(), :status,
        CASE WHEN :status = 'committed' THEN now() END,
        CASE WHEN :status = 'committed' AND :kind <> 'skip' THEN 1 END, 1, 't', 1, CAST(:keys AS json), 'why',
        CASE WHEN :status = 'aborted' THEN now() END)
"""
# As names of states may be: with what parts keys from numbers in JSON.
HARD = "a", 'b": 1, "c', "d\\", ":7"


@pytest.mark.rule("R23")
@pytest.mark.parametrize("seed", range(some_of(12, 200)))
def test_what_states_missed_is_as_a_look_at_all_batches_tells_it(engine: Engine, seed: int) -> None:
    random = Random(seed)
    seed_many(engine, 0)
    with engine.begin() as connection:
        for name in HARD:
            given = {"state": name}
            connection.execute(
                text(
                    "INSERT INTO txbatch.state (state, topology, kind, contributions, columns) "
                    "VALUES (:state, 'log', 'opaque', true, '{}')"
                ),
                given,
            )
        counted: set[str] = set()
        for txid in range(1, random.randint(1, 60)):
            if random.random() < 0.2:
                counted ^= {random.choice(HARD)}
            kind = random.choice(["ordinary"] * 6 + ["restate", "skip"])
            status = random.choice(["committed"] * 6 + ["aborted", "planned", "emitted"])
            keys = json.dumps({name: random.randint(0, 20) for name in sorted(counted)})
            connection.execute(text(OF_STATES), {"txid": txid, "kind": kind, "status": status, "keys": keys})
    told = "SELECT state, since_txid, counts_to_txid, missed, missed_txids FROM report.state_coverage ORDER BY state"
    assert days_of(engine, told) == days_of(engine, BY_ALL_BATCHES)


def test_status_of_one_topology_is_not_asked_to_see_that_the_topology_is_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = LedgerReader(bench.engine)
    monkeypatch.setattr(reader, "status", None)
    assert reader.batches("word_count") == []
    assert reader.job("word_count") == "jobs/job.py"
    for ask in (reader.batches, reader.attempts, reader.partitions, reader.job):
        with pytest.raises(UnknownName, match="nosuch"):
            ask("nosuch")


@pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (1, 4, 2, 3), (2, 8, 5, 3), (3, 1, 2, 9)])
def test_counted_time_is_the_intervals_of_committed_batches_in_whatever_order(
    engine: Engine, order: tuple[int, ...]
) -> None:
    days = Seeding(PostgresLedger(engine), flights())
    days.ledger.register(days.topology, "jobs/flights.py")
    stretches = 0
    for number in order:
        days.committed(day(number), of_day(number))
        ((counted,),), ((committed,),) = days_of(engine, UNION_OF_COUNTED), days_of(engine, UNION_OF_BATCHES)
        assert counted == committed
        ((stretches,),) = days_of(engine, "SELECT count(*) FROM txbatch.counted")
    beside = {number for number in order if number - 1 not in order}
    assert stretches == len(beside)


def days_of(engine: Engine, statement: str) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


@pytest.mark.rule("R16", "R17")
def test_all_records_are_told_through_aborts_skips_and_restates(engine: Engine) -> None:
    """Without a sum over all batches; each step is compared with that sum."""
    days = Seeding(PostgresLedger(engine), flights())
    days.ledger.register(days.topology, "jobs/flights.py")

    def told() -> None:
        (row,) = LedgerReader(engine).status("flights")
        ((summed,),) = days_of(engine, RECORDS)
        ((kept,),) = days_of(engine, "SELECT count(*) FROM txbatch.batch WHERE status = 'committed'")
        assert (row["records"], row["committed"]) == (summed, kept)

    told()
    days.committed(day(1), of_day(1))
    told()
    given_up = days.planned(day(2))
    days.planned(day(3))
    days.ledger.skip("flights", given_up.txid, "damaged")
    told()
    days.committed(day(3), of_day(3))
    told()
    for txid in (1, 3, 1, 4):
        run = Run(
            f"cli:again {txid} {days.ledger.last_txid('flights')}", restate=Restate(txid, "again", skipped=txid == 4)
        )
        days.committed(run, of_day(1))
        told()
    days.ledger.abort("flights", days.planned(day(5)).txid, "a mistake")
    days.committed(day(6), of_day(6))
    told()
    ((counted,),), ((committed,),) = days_of(engine, UNION_OF_COUNTED), days_of(engine, UNION_OF_BATCHES)
    assert counted == committed


@pytest.mark.rule("R23")
def test_all_records_are_told_after_a_rebuild(bench: Bench) -> None:
    bench.whole(words(dog=1), "1")
    bench.whole(words(dog=1), "2")
    topology = word_count(LogSpout({"a": 1_000_000}), count=Count(), most=Max("word"))
    after = Bench.__new__(Bench)
    after.engine, after.ledger, after.topology = bench.engine, bench.ledger, topology
    rebuild = after.rebuilds.begin(topology, "jobs/job.py", "c" * 64, "one more", "ann")
    for _ in range(2):
        assert after.rebuilt(rebuild, {"word_count": [(("dog",), (1, "dog"))]})
    assert after.rebuilds.swap(rebuild, topology) == Swapped(2)
    bench.run("UPDATE txbatch.batch SET records = records")  # nothing else keeps the sum
    (row,) = LedgerReader(bench.engine).status("word_count")
    assert [(row["records"],)] == bench.rows(RECORDS)
    after.whole({"word_count": [(("dog",), (1, "dog"))]}, "3")
    (row,) = LedgerReader(bench.engine).status("word_count")
    assert [(row["records"],)] == bench.rows(RECORDS)


def test_a_ledger_of_before_is_told_as_it_is(bench: Bench) -> None:
    """A ledger whose newest batch lacks the sum, as no migration leaves one."""
    bench.whole(words(dog=1), "1")
    bench.run("UPDATE txbatch.batch SET records_to = NULL")
    bench.whole(words(dog=1), "2")
    (row,) = LedgerReader(bench.engine).status("word_count")
    assert row["records"] == 20


def test_topologies_are_told_at_a_glance(engine: Engine) -> None:
    seed(engine)
    rows = {row["topology"]: row for row in mappings(engine, "SELECT * FROM report.topologies")}
    flown, clicked, ordered = rows["flights"], rows["clicks"], rows["orders"]
    asked = ("by_interval", "zone", "newest_txid", "current_to_txid", "in_flight", "failing", "waiting", "gaps")
    assert [flown[name] for name in asked] == [True, "America/New_York", 34, 31, 2, 1, 2, 1]
    assert f"{flown['whole_to']:%Y-%m-%dT%H:%MZ}" == "2013-01-13T05:00Z"
    assert [clicked[name] for name in asked] == [False, None, 4, 4, 0, 0, 0, 0]
    assert clicked["whole_to"] is None
    assert [ordered[name] for name in asked] == [True, "UTC", None, None, 0, 0, 0, 0]
    assert flown["streams"]["flights"]["carrier"] == "string"
    looks = mappings(engine, "SELECT txid, look FROM report.exceptional_txids WHERE topology = 'flights' ORDER BY txid")
    assert [tuple(each.values()) for each in looks] == [
        *((RESTATED, "replaced"), (31, "restate"), (32, "aborted"), (FAILING, "failing"), (WAITING, "emitted"))
    ]
    runs = mappings(engine, "SELECT txid FROM report.batch_runs WHERE run_id LIKE 'scheduled__2013-01-02%'")
    assert runs == [{"txid": 1}]
    assert len(DAYS) == 30


def test_states_are_told_with_what_can_be_asked_of_them(engine: Engine) -> None:
    seed(engine)
    rows = {row["state"]: row for row in mappings(engine, "SELECT * FROM report.states")}
    told = rows["flights"]
    assert told["key_columns"] == [{"name": "carrier", "type": "text"}, {"name": "origin", "type": "text"}]
    assert [each["name"] for each in told["value_columns"]] == ["flights", "dep_delay_mean", "dep_delay_max"]
    assert (told["kind"], told["contributions"], told["apart"], told["merged_by_job"]) == (
        *("transactional", True, None, False),
    )
    assert (told["past_from"], told["past_to"]) == (0, 31)
    assert [each["type"] for each in rows[TAG]["value_columns"]] == ["numeric(38,0)"]
    assert rows["orders"]["key_columns"] is None
    assert (rows["orders"]["past_from"], rows["orders"]["past_to"]) == (0, 0)


def mappings(engine: Engine, statement: str) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(text(statement)).mappings()]


def test_the_zone_of_a_schedule_is_kept_until_another_one_is_told(engine: Engine) -> None:
    ledger, topology = PostgresLedger(engine), flights()

    def zone() -> Any:
        return mappings(engine, "SELECT zone FROM report.topologies")[0]["zone"]

    ledger.register(topology, "jobs/flights.py")
    assert zone() is None
    ledger.register(topology, "jobs/flights.py", "Europe/Berlin")
    assert zone() == "Europe/Berlin"
    ledger.register(topology, "jobs/flights.py")
    assert zone() == "Europe/Berlin"
    ledger.register(topology, "jobs/flights.py", "UTC")
    assert zone() == "UTC"


def test_the_batches_of_a_run_are_those_that_it_planned(bench: Bench) -> None:
    """Another run that finds a batch has not planned that batch."""
    first, heir = (Run(f"airflow:word_count:{run_id}", "word_count", run_id) for run_id in ("a", "b"))
    batch = coordinator.initialize_transaction(bench.ledger, bench.topology, first)
    assert isinstance(batch, Batch)
    bench.run("UPDATE txbatch.batch SET lease_until = now() - interval '1 s'")
    assert bench.ledger.adopt(batch, heir) is not None
    reader = LedgerReader(bench.engine)
    assert [row["txid"] for row in reader.batches_of_run("word_count", "a")] == [1]
    assert reader.batches_of_run("word_count", "b") == []
    found = mappings(bench.engine, "SELECT run_id, txid FROM report.batch_runs ORDER BY run_id")
    assert found == [{"run_id": "a", "txid": 1}]


@pytest.mark.rule("R19")
def test_a_key_is_folded_from_its_own_contributions_alone(bench: Bench) -> None:
    """As a reader of reports compares a value with what its contributions amount to: among 20,000 keys."""
    for name in ("1", "2"):
        bench.whole({"word_count": [((f"w{n:05}",), (1,)) for n in range(20_000)]}, name)
    bench.run("ANALYZE")
    folded = "SELECT * FROM report.as_of_word_count(2) WHERE word = CAST('w00777' AS text)"
    with bench.engine.begin() as connection:
        connection.execute(text(statements()["fold_all"]))
        (row,) = connection.execute(text(folded))  # the functions are known to the session from now on
        plan = connection.execute(text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {folded}")).scalar_one()[0]["Plan"]
    assert tuple(row) == ("w00777", 2, 2)
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 200, plan
