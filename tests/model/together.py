"""Histories of corrections in which gc, rebuilds and swaps come between each other (R17, R19, R22, R23)."""

from __future__ import annotations

from random import Random
from typing import Any

from model.corrections import Shape, Step, drawn
from model.folded import Folded
from model.rebuilt import Rebuilt

from txbatch.core.errors import TransientError

# The source is read to its end, and some of it was wrong: a key that the restate takes from its position changes last by that,
# where no later batch has the key.
FOLDED = [*["whole"] * 3, *["change"] * 3, "restate", "late", "whole", "gc"]
COUNTED = ["change", "rebuild", "gc", "late", "whole", "rebuild", "gc"]
AS_FAR_AS_IT_GOES = 5


class Together(Folded, Rebuilt):
    """A history that is folded and counted again. Each generation has a horizon of its own, and that of a replaced one stays."""

    swapped = 0  # what was shown up to here is asked of a replaced generation
    folds = kept_out = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.past = set[int]()  # which of that was not folded when it was replaced

    def do_gc(self, which: int, how: int) -> None:
        if self.rebuild is None:
            before = self.horizon
            super().do_gc(which, how)
            self.folds += self.horizon > before
            return
        try:
            assert list(self.place.retention.fold(self.topology.name, max(self.kept.versions))) == []
        except TransientError:
            self.kept_out += 1
        else:
            assert self.horizon == max(self.kept.versions), "folded what a rebuild counts"
        assert self.place.report(self.topology) == self.kept.report
        self.check_past()

    def swap(self) -> None:
        before, askable = self.swaps, [txid for txid in self.kept.shown if self.askable(txid)]
        super().swap()
        if self.swaps > before:
            self.swapped, self.horizon = max(self.kept.versions), 0
            self.past = {txid for txid in askable if txid <= self.swapped}
            assert self.place.retention.horizon(self.topology.name) == 0
            self.check_past()

    def askable(self, txid: int) -> bool:
        return txid in self.past if txid <= self.swapped else txid >= self.horizon


def drawn_together(seed: int) -> tuple[Shape, list[Step]]:
    """The history of a seed; between its steps something is restated and what was there before folded, or all counted again."""
    shape, steps = drawn(seed)
    chance = Random(seed)
    for _ in range(3):
        verbs = chance.choice([FOLDED, FOLDED, COUNTED])
        at = chance.randrange(len(steps) + 1)
        steps[at:at] = [Step(verb, chance.randrange(1000), 3 * chance.randrange(300) + 1) for verb in verbs]
    return shape, [step._replace(which=step.which * AS_FAR_AS_IT_GOES) if step.verb == "gc" else step for step in steps]
