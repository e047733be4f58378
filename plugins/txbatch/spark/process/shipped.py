"""Ships parts of a job to Spark's executors by value: functions, classes, and caches, because executors lack the job's
folders.
"""

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
    """A module of cloudpickle: PySpark's own, or a copy."""

    def register_pickle_by_value(self, module: ModuleType) -> None:
        """Let the module's definitions travel by value."""


def ship_by_value(cloudpickle: Cloudpickle, job: Path) -> Sequence[str]:
    """Let definitions beside the job travel by value, and definitions in folders above the job from which Python imports.

    Return the names of the loaded modules. A folder of PYTHONPATH is left out: executors have PYTHONPATH, too.
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
    """Return the job's folder, and the folders above from which Python imports, but executors do not.

    A folder reached through a link is listed by both names: a module's file has the name used by the import.
    """
    told = {Path(each).resolve() for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each}
    above = {Path(each).resolve() for each in sys.path if each} - told
    folder = job.resolve().parent
    found = [folder, job.absolute().parent, *(each for each in folder.parents if each in above)]
    return list(dict.fromkeys(map(str, found)))


def _cache_anew(cached: Any) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the pickling of a function with a cache: by the function, with an empty cache, for a job's own; by name for the
    rest.
    """
    function = cached.__wrapped__
    if function.__module__ not in _by_value and "<locals>" not in function.__qualname__:
        return str(cached.__qualname__)
    return _cached, (function, cached.cache_parameters())


def _cached(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = lru_cache(**parameters)(function)
    return made
