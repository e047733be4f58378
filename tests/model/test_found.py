"""What the model found, told once more on both ledgers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from model.ledgers import MemoryView, PostgresView, View
from model.oracle import check
from model.source import Size
from model.story import Story

from txbatch import SpoutKind
from txbatch.core.errors import StaleAttempt


@pytest.fixture(params=["memory", "postgres"])
def view(request: pytest.FixtureRequest) -> View:
    make: dict[str, Callable[[], View]] = {
        "memory": MemoryView,
        "postgres": lambda: PostgresView(request.getfixturevalue("engine")),
    }
    return make[request.param]()


def test_a_commit_that_loaded_an_older_attempt_is_refused(view: View) -> None:
    """Two attempts that left out another partition each: as many rows, other records (R5).

    Under the newer attempt's manifest the older one's work would count the records of `a` twice and lose those of `b`.
    """
    story = Story(Size(1, 2, 2, SpoutKind.OPAQUE), view)
    story.initialize("run")
    for number, away in enumerate("ba"):
        story.attempt("run", 1)
        story.emit(1, number, away)
    with pytest.raises(StaleAttempt, match=r"attempt 1:1 is not the newest .*1:2"):
        story.commit(1, 0)
    assert view.seen("model").rows == {}
    assert story.commit(1, 1)
    check(view.seen("model"), story.read, story.source, max_pending=1)


def test_skip_leaves_alone_what_was_not_planned(view: View) -> None:
    """A partition that was away when the batch was planned keeps its place: the next plan asks it again (R16, R13)."""
    story = Story(Size(2, 1, 2, SpoutKind.OPAQUE), view)
    story.initialize("1", away="b")
    story.skip(1)
    assert view.seen("model").consumed == {"a": 1}
    planned = story.initialize("2").metadata["streams"]["words"]["partitions"]
    assert planned == {"a": {"start": 1, "end": 2}, "b": {"start": 0, "end": 1}}


def test_an_aborted_batch_is_skipped_though_its_run_has_planned_anew(view: View) -> None:
    """The run finds the txid that gives the records up; the one it planned meanwhile no longer continues (R16, R2)."""
    story = Story(Size(4, 1, 1), view)
    story.initialize("run")
    story.abort(1)
    assert story.initialize("run").txid == 2
    story.abort(2)
    story.skip(1)
    assert story.initialize("run").txid == 3
    assert view.seen("model").consumed == {"a": 1}
