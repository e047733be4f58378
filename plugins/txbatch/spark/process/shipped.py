"""What of a job travels to Spark's executors by value, for they lack its folders: functions, classes, and caches of functions."""

from __future__ import annotations

import copyreg
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from txbatch.core.records.own_code import lies_in

_CACHED = type(cache(lambda: None))
_by_value = {"__main__"}


class Cloudpickle(Protocol):
    """A module of cloudpickle: PySpark's own, or a copy of it."""

    def register_pickle_by_value(self, module: ModuleType) -> None:
        """Let what the module defines travel by value."""


def ship_by_value(cloudpickle: Cloudpickle, job: Path) -> Sequence[str]:
    """Let what is defined beside the job, or in a folder above it from which Python imports, travel by value.

    Returns the names of the modules found loaded. A folder of PYTHONPATH is left out: the executors have that, too.
    """
    copyreg.pickle(_CACHED, _cache_anew)
    folders, modules = own_folders(job), list(sys.modules.items())
    shipped = [
        name for name, module in modules if name != "__main__" and any(lies_in(module, each) for each in folders)
    ]
    for name in shipped:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    _by_value.update(shipped)
    return shipped


def own_folders(job: Path) -> Sequence[str]:
    """Return the folder of the job, and those above it from which Python imports, and executors do not.

    A folder that is reached through a link is there by both names: a module's file has the one that was imported from.
    """
    told = {Path(each).resolve() for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each}
    above = {Path(each).resolve() for each in sys.path if each} - told
    folder = job.resolve().parent
    found = [folder, job.absolute().parent, *(each for each in folder.parents if each in above)]
    return list(dict.fromkeys(map(str, found)))


def _cache_anew(cached: Any) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return how a function with a cache is pickled: its own one by its function, with an empty cache; else by its name."""
    function = cached.__wrapped__
    if function.__module__ not in _by_value and "<locals>" not in function.__qualname__:
        return str(cached.__qualname__)
    return _cached, (function, cached.cache_parameters())


def _cached(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = lru_cache(**parameters)(function)
    return made
