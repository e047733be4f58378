"""What TXBATCH_FAILPOINTS arms: a name or an action that there is not is refused, before anything is done."""

from __future__ import annotations

import pytest

from txbatch import failpoints, settings
from txbatch.core.errors import DefinitionError


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("commit.typo=kill:marker", "there is no failpoint 'commit.typo'; there are abort.apart_committed, "),
        ("commit.loaded=raise,emit.recorde=raise", "there is no failpoint 'emit.recorde'"),
        ("commit.loaded", "commit.loaded cannot ''; it can block, kill, raise"),
        ("commit.loaded=kil:/x", "commit.loaded cannot 'kil:/x'"),
    ],
)
def test_what_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch, given: str, why: str) -> None:
    monkeypatch.setenv("TXBATCH_FAILPOINTS", given)
    with pytest.raises(ValueError, match="TXBATCH_FAILPOINTS: ") as refused:
        failpoints.hit("success.cleaned")
    assert why in str(refused.value)
    with pytest.raises(DefinitionError) as refused_by_settings:
        settings.resolve("postgresql+psycopg2://nobody@127.0.0.1:1/none")
    assert why in str(refused_by_settings.value)


def test_the_armed_point_alone_does_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXBATCH_FAILPOINTS", "commit.loaded=raise")
    failpoints.hit("commit.before_lock")
    with pytest.raises(failpoints.FailpointReached, match=r"commit\.loaded"):
        failpoints.hit("commit.loaded")
