"""A state stays in the database that it was first counted in (R21, R23), in both ledgers alike."""

from __future__ import annotations

from typing import Any

import pytest
from redefined import JOB, WHY, defined, whole

from txbatch import OpaqueState, TransactionalState
from txbatch.core.errors import SchemaMismatch

HERE, WAREHOUSE, OTHER = None, "warehouse", "other"
WHERE = {HERE: "the ledger's database", WAREHOUSE: "database 'warehouse'", OTHER: "database 'other'"}


@pytest.mark.rule("R21", "R23")
@pytest.mark.parametrize("kind", [OpaqueState, TransactionalState])
@pytest.mark.parametrize(("was", "now"), [(HERE, WAREHOUSE), (WAREHOUSE, HERE), (WAREHOUSE, OTHER)])
def test_a_change_of_its_database_is_refused_with_the_next_step(
    backing: Any, kind: Any, was: str | None, now: str | None
) -> None:
    before, after = defined(state=kind("s", database=was)), defined(state=kind("s", database=now))
    whole(backing, before, "1", dog=2)
    for refused in (lambda: backing.ledger.change(after, JOB, WHY), lambda: backing.initialize(after, "2")):
        with pytest.raises(SchemaMismatch) as raised:
            refused()
        told = str(raised.value)
        what = (
            f"state 's' changes from {WHERE[was]} to {WHERE[now]}, and what is counted stays where it is. Put the old"
        )
        assert what in told
        assert "or define another topology, with states of other names" in told
        assert "txbatch rebuild" not in told
    whole(backing, before, "2", dog=1)
    counts = backing.values("s", "count") if was is HERE else backing.apart("s")
    assert counts[("dog",)] == (3, 2)
