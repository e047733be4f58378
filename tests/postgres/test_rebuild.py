"""Rebuild (R23): a new generation of a topology's states beside the one that counts, and the swap."""

from __future__ import annotations

import pytest
from postgres_bench import Bench, Calls, raw_connection, words
from support import until

from txbatch.core.transaction import BatchStatus

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"


@pytest.mark.rule("R1", "R23")
def test_a_commit_shares_the_topology_with_plans_and_waits_for_who_has_it_alone(
    bench: Bench, postgres_url: str
) -> None:
    first, calls = bench.emitted(words(man=1)), Calls()
    with raw_connection(postgres_url) as alone, raw_connection(postgres_url) as plan:
        plan.cursor().execute("SELECT FROM txbatch.topology FOR NO KEY UPDATE")
        assert bench.commit(first, words(man=1))
        plan.rollback()
        second = bench.emitted(words(dog=1), "second")
        alone.cursor().execute("SELECT FROM txbatch.topology FOR UPDATE")
        calls.start("commit", lambda: bench.commit(second, words(dog=1)))
        until(lambda: bench.rows(WAITING) == [(1,)], "the commit does not wait")
        with raw_connection(postgres_url) as other:  # the batch's row is free: the topology's is the first lock
            other.cursor().execute("SELECT FROM txbatch.batch WHERE txid = 2 FOR UPDATE NOWAIT")
        assert bench.ledger.batch("word_count", 2).status is BatchStatus.EMITTED
        alone.rollback()
    assert calls.join() == {"commit": True}
