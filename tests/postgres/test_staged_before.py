"""A batch that an older version emitted is committed by this one, from the files that the older version staged.

ledgers/f211290.sql and the folder ledgers/f211290/ are what `txbatch run` left with the code of commit f211290, killed at the
failpoint `emit.recorded`. The ledger was dumped as that of test_older_ledger.py; the bodies of its
functions are checked only when these run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from txbatch import CollectSet, Count, FixedBatchSpout, Max, OpaqueState, TopN, Topology
from txbatch.core.batch.transaction import BatchStatus
from txbatch.launch.job_file import Job
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.database.run_locks import PostgresRunLocks
from txbatch.postgres.ledger import PostgresLedger
from txbatch.run.steps import Steps
from txbatch.storage.staging import Staging

LEDGERS = Path(__file__).parent / "ledgers"


def sentences() -> Topology:
    topology = Topology("sentences")
    spout = FixedBatchSpout("sentence string", 2, "how are you", "nice to meet you", "what a good day")
    words = topology.new_stream("in", spout).flat_map("split(sentence, ' ')", "word string").group_by("word")
    words.persistent_aggregate(
        OpaqueState("sentences"), count=Count(), last=Max("word"), top=TopN(2, "word"), quantile=CollectSet("word", 3)
    )
    return topology


@pytest.mark.rule("R5", "R7")
def test_what_an_older_version_staged_is_committed_by_its_attempt(
    databases: Callable[[str], str], tmp_path: Path
) -> None:
    restored = connect(databases("staged"))
    with restored.begin() as connection:
        connection.connection.cursor().execute((LEDGERS / "f211290.sql").read_text(encoding="utf-8"))
        connection.connection.cursor().execute("RESET search_path")
    migrate(restored)
    shutil.copytree(LEDGERS / "f211290", tmp_path / "staging")
    job = Job("jobs/sentences.py", tmp_path / "sentences.py", sentences(), "of a later version")
    ledger, staging = PostgresLedger(restored), Staging((tmp_path / "staging").as_uri())
    steps = Steps(job, ledger, staging, PostgresRunLocks(restored))
    steps.register()
    batch = ledger.batch("sentences", 1)
    assert batch.status is BatchStatus.EMITTED
    assert steps.commit(batch).applied
    assert not steps.commit(batch).applied
    steps.success(ledger.batch("sentences", 1))
    with restored.connect() as connection:
        rows = connection.execute(text("SELECT word, count, top FROM report.sentences ORDER BY word")).all()
    restored.dispose()
    assert [tuple(row) for row in rows] == [
        ("are", 1, ["are"]),
        ("how", 1, ["how"]),
        ("meet", 1, ["meet"]),
        ("nice", 1, ["nice"]),
        ("to", 1, ["to"]),
        ("you", 2, ["you", "you"]),
    ]
    assert not [each for each in (tmp_path / "staging").rglob("*") if each.is_file()]
