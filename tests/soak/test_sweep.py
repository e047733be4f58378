"""The connection is cut before and after the statements of a batch's life, of an abort and of a skip; then all is drained.

SOAK_STRIDE=1 takes each statement, as `make soak` does; else every 33rd, every eleventh in `make test-all`, others in each case.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest
from sizes import some_of
from soak.dying import Life
from soak.history import History

from txbatch import OpaqueState, SpoutKind, TransactionalState
from txbatch.core.batch.transaction import Run
from txbatch.run.steps import Steps

STRIDE = some_of(33, 11, "SOAK_STRIDE")
SHORTEST = 12  # an abort has so many statements
OURS, NEXT = Run("cli:ours"), Run("cli:next")


def batch(history: History, life: Life) -> None:
    history.run(OURS, life)


def half_committed(history: History) -> None:
    """In the warehouse, and not in the ledger; another batch is planned and emitted behind it."""
    history.run(OURS, Life("SET applied_txid"))
    history.run(NEXT, Life("waits for"))


def abort(history: History, life: Life) -> None:
    half_committed(history)
    history.as_process(life, "abort 1", lambda steps: steps.ledger.abort(history.name, 1, "wrong"))


def skip(history: History, life: Life) -> None:
    half_committed(history)

    def give_up(steps: Steps) -> None:
        steps.ledger.skip(history.name, 1, "poison")

    history.as_process(life, "skip 1", give_up)


@pytest.mark.timeout(600)
@pytest.mark.rule("R5", "R6", "R10", "R16", "R21")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("there", [TransactionalState, OpaqueState])
@pytest.mark.parametrize("act", [batch, abort, skip])
def test_cut_at_a_statement(
    act: Callable[[History, Life], None],
    there: type[OpaqueState] | type[TransactionalState],
    after: bool,
    ledger_url: str,
    warehouse: Callable[[str], str],
    tmp_path: Path,
) -> None:
    case = f"{act.__name__}_{there.__name__[0]}_{'after' if after else 'before'}".lower()
    first = 1 + Random(case).randrange(min(STRIDE, SHORTEST))
    for at in count(first, STRIDE):
        life = Life(at, after=after)
        kind = SpoutKind.TRANSACTIONAL
        history = History(Random(0), ledger_url, warehouse, tmp_path, f"{case}_{at}", False, kind, there, max_pending=2)
        try:
            act(history, life)
            history.drain()
        except BaseException:
            print(f"{case}, statement {at}", *history.happened, sep="\n")
            raise
        finally:
            history.close()
        if not life.over:
            assert at > first, "nothing was cut"
            return
