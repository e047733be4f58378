"""Names of runs of `txbatch run` and similar calls. A call with several batches gives each batch a run of its own,
named after the call.

To the ledger these are ordinary runs. The process holds the name of the call, to keep other processes from its runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, repeat
from uuid import uuid4

from txbatch.core.batch.transaction import Metadata, Restate, Run
from txbatch.core.errors import LeaseHeld, concerning
from txbatch.core.protocol.ports import RunLocks

RUN_PREFIX = "cli:"
# Between the name of a call that plans several batches ahead and the number of one of its runs.
OF_CALL = "+"
_OF_CALL = re.compile(rf"({RUN_PREFIX}(?:[0-9a-f]{{12}}|restate-[0-9a-f]{{12}}-\d+))\{OF_CALL}\d+")


def new_run(parameters: Metadata | None) -> Run:
    """Return a run with a new name."""
    return Run(f"{RUN_PREFIX}{uuid4().hex[:12]}", parameters=parameters or {})


def named(run_id: str, parameters: Metadata | None) -> Run:
    """Return the run with a given name."""
    return Run(f"{RUN_PREFIX}{run_id}", parameters=parameters or {})


def call_of(name: str) -> str:
    """Return the name to hold for a run: the name of its call if the call has several runs, or the run's own name."""
    found = _OF_CALL.fullmatch(name)
    return found[1] if found else name


def names(call: str) -> Iterator[str]:
    """Yield names for the runs of a call."""
    return (f"{call}{OF_CALL}{number}" for number in count(1))


def restates(name: str, asked: Sequence[Restate], *, each_by_name: bool = False) -> list[Run]:
    """Return a run for each position: all with this name, or each with a name of its own, named after this call."""
    call = f"{RUN_PREFIX}{name}"
    found = names(call) if each_by_name else repeat(call)
    return [Run(each_name, restate=each) for each_name, each in zip(found, asked, strict=False)]


@contextmanager
def hold(locks: RunLocks, topology: str, run: Run) -> Iterator[Run]:
    """Context manager. Hold the name of the run, or of its call. Raise LeaseHeld while another process holds the name."""
    with locks.hold(topology, call_of(run.name)) as mine:
        if not mine:
            with concerning(topology=topology):
                raise LeaseHeld(f"{topology}: {run.name} is running; wait until it ends")
        yield run
