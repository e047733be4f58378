"""What decides who adopts, waits, emits, commits and plans anew is explored as it is, and found out without a decision of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from model.driver import World, explore

from txbatch import SpoutKind
from txbatch.core.protocol import coordinator, decisions
from txbatch.core.protocol.coordinator import Yours
from txbatch.run import shared_emission
from txbatch.run.advance import Advance
from txbatch.run.shared_emission import Emit
from txbatch.run.steps import Steps

Patch = Callable[[pytest.MonkeyPatch], None]
SIZES = [
    pytest.param(2, 1, SpoutKind.TRANSACTIONAL, ("advance", "share"), marks=pytest.mark.whole),
    (2, 2, SpoutKind.TRANSACTIONAL, ("advance", "share")),
    pytest.param(3, 2, SpoutKind.OPAQUE, ("advance",), marks=pytest.mark.whole),
]


@pytest.mark.rule("R5", "R6")
@pytest.mark.parametrize(("records", "max_pending", "kind", "actions"), SIZES)
def test_every_run_comes_to_its_end_and_each_record_counts_once(
    records: int,
    max_pending: int,
    kind: SpoutKind,
    actions: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World(records, max_pending, kind)
    states = explore(world, attempts=3, actions=actions, depth=2)
    assert {"advance Finished", "advance Wait", "advance NothingNew", "advance StaleAttempt"} <= world.answers.keys()
    if "share" in actions:
        assert {"share Emitted", "share WaitForOthers", "share Taken", "share Wait"} <= world.answers.keys()
    with capsys.disabled():
        print(f"\n{states:,} states:", ", ".join(f"{name} {n:,}" for name, n in sorted(world.answers.items())))


def never_its_turn_to_wait(patch: pytest.MonkeyPatch) -> None:
    """A run commits without asking what stands before its batch."""
    patch.setattr(coordinator, "take_turn", lambda *_: Yours())


def own_batch_is_left(patch: pytest.MonkeyPatch) -> None:
    """A run that has finished another's batch is content."""
    patch.setattr(decisions, "belongs_to_another", lambda *_: False)


def broken_chain_is_an_error(patch: pytest.MonkeyPatch) -> None:
    """A batch that does not continue is not planned anew."""
    patch.setattr(Advance, "_commit", Advance._commit_what_is_staged)


def held_lease_is_an_error(patch: pytest.MonkeyPatch) -> None:
    """What another live run emits is not waited for."""
    patch.setattr(Steps, "emit_or_wait", Steps.emit_batch)


def everyone_emits(patch: pytest.MonkeyPatch) -> None:
    """A first try does not wait for the application that is at work."""
    patch.setattr(shared_emission, "decide", lambda batch, run, *, alone, first_try: Emit(batch, for_others=alone))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of runs that are refused would say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


MUTATIONS: list[tuple[Patch, str]] = [
    (never_its_turn_to_wait, "NotItsTurn"),
    (own_batch_is_left, "no batch of its own"),
    (broken_chain_is_an_error, "BrokenChain"),
    (held_lease_is_an_error, "LeaseHeld"),
    (everyone_emits, "fenced off what was under way"),
]


@pytest.mark.parametrize(("mutation", "says"), MUTATIONS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_driver_without_this_decision_is_found_out(
    mutation: Patch, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError, match=says):
        explore(World(2, 2), attempts=3, actions=("advance", "share"), depth=2)
