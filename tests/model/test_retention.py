"""Random histories of corrections, folded at random horizons: what reports show, and showed since, stays (R19, R22)."""

from __future__ import annotations

import random

import pytest
from model.corrections import History, Step, drawn, found_wrong
from model.places import Real
from model.test_corrections import HISTORIES
from sqlalchemy import Engine

from txbatch.core.transaction import Restate
from txbatch.postgres.retention import Retention


class Folded(History):
    """A history that is folded now and then."""

    horizon = 0

    def do_gc(self, which: int, _: int) -> None:
        newest = max(self.kept.versions, default=0)
        final = [txid for txid in self.kept.shown if txid <= newest]
        if len(final) < 2:
            return
        assert isinstance(self.place, Real)
        kept, before = Retention(self.place.engine), dict(self.kept.report)
        list(kept.fold(self.topology.name, final[which % (len(final) - 1)]))
        self.horizon = kept.horizon(self.topology.name)
        assert self.place.report(self.topology) == before
        for txid in (txid for txid in final if txid >= self.horizon):
            assert self.place.as_of(self.topology, txid) == self.kept.shown[txid], (
                f"as of {txid}, folded to {self.horizon}"
            )

    def restatable(self, again: Restate) -> bool:
        return super().restatable(again) and self.kept.current(again.position).txid > self.horizon

    def check(self) -> None:
        assert self.place.report(self.topology) == self.kept.report


@pytest.mark.rule("R19", "R22")
@pytest.mark.timeout(0 if HISTORIES > 20_000 else 300)
def test_fifty_folded_histories_on_postgresql(engine: Engine) -> None:
    place, folded = Real(engine), 0
    for seed in range(HISTORIES // 400):
        shape, steps = drawn(seed)
        chance = random.Random(seed)
        for _ in range(2):
            steps.insert(chance.randrange(2, len(steps) + 1), Step("gc", chance.randrange(1000), 0))
        history = Folded(place, f"g{seed}", shape)
        error = found_wrong(history, steps)
        assert error is None, f"seed {seed}: {shape}\n{error}\n{history.story}"
        folded += history.horizon > 0
    assert folded > HISTORIES / 2000
