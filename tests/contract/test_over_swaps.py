"""Who reads a state, and a rebuild that comes between two of its attempts or batches (R22, R23), in both ledgers."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_rebuild import Rebuilding
from contract.test_restate import words
from contract.test_upstream import Chain
from support import run

from txbatch.core.rebuild import Swapped

pytestmark = pytest.mark.rule("R23")


@pytest.fixture
def chain(backing: Any) -> Chain:
    return Chain(backing)


def rebuilds(chain: Chain, **counted: dict[str, int]) -> None:
    """Count these words of each version, such as `_2`, by the job as it is, and swap."""
    rebuilding = Rebuilding(chain, chain.topology)
    for txid, of in counted.items():
        assert rebuilding.offer(int(txid[1:]), words(**of))
    assert isinstance(rebuilding.swap(), Swapped)


def goes(chain: Chain, name: str, **counts: int) -> None:
    of = run(name)
    chain.goes(chain.initialize(of), of, words(**counts))


@pytest.mark.rule("R17")
def test_an_attempt_is_given_the_txid_at_which_a_key_went_before_and_after_a_rebuild(chain: Chain) -> None:
    chain.counts("1", dog=1, cat=2)
    chain.reads("a")
    chain.restates(1, cat=2)
    chain.counts("3", emu=1)
    chain.counts("4", emu=1)
    batch = chain.plans("b")
    first = chain.exports(batch, "b")
    assert first == [("dog", "removed", 1, None, 2), ("emu", "added", None, 2, 4)]
    rebuilds(chain, _2={"cat": 2}, _3={"emu": 1}, _4={"emu": 1})
    assert chain.exports(batch, "b") == first
    goes(chain, "5", emu=1)
    rebuilds(chain, _2={"cat": 2}, _3={"emu": 1}, _4={"emu": 1}, _5={"emu": 1})
    assert chain.exports(batch, "b") == first


@pytest.mark.rule("R17", "R22")
def test_what_retention_had_folded_of_the_key_is_no_matter(chain: Chain) -> None:
    chain.counts("1", dog=1)
    chain.counts("2", dog=1, cat=1)
    chain.counts("3", cat=1)
    list(chain.backing.retention.fold("word_count", 1))
    chain.reads("a")
    chain.restates(2, cat=1)
    chain.restates(3)
    batch = chain.plans("b")
    first = chain.exports(batch, "b")
    assert first == [("cat", "changed", 2, 1, 5), ("dog", "changed", 2, 1, 4)]
    rebuilds(chain, _1={"dog": 1}, _4={"cat": 1}, _5={})
    assert chain.exports(batch, "b") == first


def test_what_a_rebuild_took_away_is_told_by_the_last_txid_before_and_after_another_rebuild(chain: Chain) -> None:
    chain.counts("1", dog=1, cat=2)
    chain.reads("a")
    rebuilds(chain, _1={"cat": 2})
    goes(chain, "2", emu=1)
    batch = chain.plans("b")
    first = chain.exports(batch, "b")
    assert first == [("dog", "removed", 1, None, 2), ("emu", "added", None, 1, 2)]
    rebuilds(chain, _1={"cat": 2}, _2={"emu": 1})
    assert chain.exports(batch, "b") == first
