"""The stories of protocol/: whole batches through outages, kills and zombies, told once, played on both ledgers and in two ways.

A story says `why` it is told, which `rules` it shows, the `source` (partitions with so many records, a list of batches, or
days), the kind of `spout` and `state`, whether the state is `apart` in another database, `max_pending`, its `steps` (see
telling.py), and what to `expect` at its end: the report, in which each record of a partition is a digit 1, what is
consumed, the batches with the attempt that counts, and the holes. A definition that is refused has no steps, but a
`code` and `names`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from golden.telling import Told, batches, holes, topology_of
from golden.together import Together
from model.ledgers import MemoryView, PostgresView, View
from refusals import refused

STORIES = sorted((Path(__file__).parent / "protocol").glob("*.json"))
told = pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)


@pytest.fixture(params=["memory", "postgres"])
def view(request: pytest.FixtureRequest) -> View:
    make: dict[str, Callable[[], View]] = {
        "memory": MemoryView,
        "postgres": lambda: PostgresView(request.getfixturevalue("engine"), request.getfixturevalue("databases")),
    }
    return make[request.param]()


def test_there_are_enough_stories() -> None:
    assert len(STORIES) >= 20


@told
@pytest.mark.parametrize("way", [Told, Together], ids=["singly", "together"])
def test_story(path: Path, way: type[Told], view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    if "code" in case:
        with refused(case["code"], *case["names"]):
            topology_of(case)
        return
    story = way(case, view, monkeypatch)
    story.tell_all(case["steps"])
    seen = {
        "report": view.report("story"),
        "consumed": view.seen("story").consumed,
        "batches": batches(story),
        "holes": holes(story),
    }
    assert {name: seen[name] for name in case["expect"]} == case["expect"]


def test_most_stories_are_told_by_jobs_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that emit a batch of which no partition is away; some have trains."""
    jobs = dict[str, list[int]]()
    for path in STORIES:
        case = json.loads(path.read_text(encoding="utf-8"))
        if "code" not in case:
            story = Together(case, MemoryView(), monkeypatch)
            story.tell_all(case["steps"])
            jobs[path.stem] = story.jobs
    without = [name for name, lengths in jobs.items() if not lengths]
    assert len(jobs) - len(without) > 0.9 * len(STORIES), without
    assert sum(max(lengths, default=0) > 1 for lengths in jobs.values()) > 5
