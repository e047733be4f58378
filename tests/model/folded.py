"""Histories of corrections that are folded now and then: what reports show, and showed since the horizon, stays (R19, R22)."""

from __future__ import annotations

from random import Random

from model.corrections import History, Shape, Step, drawn

from txbatch.core.batch.transaction import Restate


class Folded(History):
    """A history that is folded now and then; what is asked and restated then is above the horizon."""

    def do_gc(self, which: int, _: int) -> None:
        """Up to some final txid, but never the newest."""
        newest = max(self.kept.versions, default=0)
        final = [txid for txid in self.kept.shown if txid <= newest]
        if len(final) < 2:
            return
        kept, name, reached = self.place.retention, self.topology.name, self.horizon
        done = list(kept.fold(name, final[:-1][-1 - which % 5 % (len(final) - 1)]))
        self.horizon = kept.horizon(name)
        assert self.horizon == max([reached, *(each.horizon for each in done)])
        assert self.horizon == 0 or not self.in_flight(self.horizon)
        assert self.place.report(self.topology) == self.kept.report
        self.check_past()

    def in_flight(self, horizon: int) -> bool:
        """Whether a restate is going to replace what is folded."""
        return any(work.batch.position <= horizon for work in self.of_status("open"))

    def restatable(self, again: Restate) -> bool:
        current = self.kept.current(again.position)
        return super().restatable(again) and current is not None and current.txid > self.horizon


def drawn_folded(seed: int) -> tuple[Shape, list[Step]]:
    """The history of a seed, with something to fold in its middle, and folded there and towards its end."""
    shape, steps = drawn(seed)
    chance = Random(seed)
    at = chance.randrange(2, len(steps) + 1)
    verbs = ["change", "restate", "whole", *["gc"] * chance.randint(0, 1)]
    steps[at:at] = [Step(verb, chance.randrange(1000), 3 * chance.randrange(300) + 1) for verb in verbs]
    steps.insert(chance.randrange(at + 3, len(steps) + 1), Step("gc", chance.randrange(1000), 0))
    return shape, steps
