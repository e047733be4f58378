"""The coordinators of spouts: for a single plan, or for several plans by a shared look at the sources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Self

from txbatch.core.naming import naming_stream
from txbatch.core.sources.spout import BatchCoordinator
from txbatch.core.topology.stream import Stream


class Coordinators:
    """The coordinators of several plans, made by one look at the sources. Each coordinator is created at the first use.

    All coordinators are closed when the `with` block ends.
    """

    def __init__(self) -> None:
        self._made, self._ending = dict[str, BatchCoordinator](), ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def of(self, stream: Stream) -> BatchCoordinator:
        """Return the coordinator of a stream."""
        if stream.name not in self._made:
            made = stream.spout.coordinator()
            self._ending.enter_context(
                naming_stream(f"{stream.topology.name}: the coordinator of stream {stream.name!r}")
            )
            self._ending.callback(made.close)
            self._ending.enter_context(made.one_look())
            self._made[stream.name] = made
        return self._made[stream.name]


@contextmanager
def coordinator_of(stream: Stream, by: Coordinators | None) -> Iterator[BatchCoordinator]:
    """Context manager. Yield a stream's coordinator: shared by several plans, or a new one, closed when the block ends."""
    if by is not None:
        yield by.of(stream)
        return
    with closing(stream.spout.coordinator()) as coordinator:
        yield coordinator
