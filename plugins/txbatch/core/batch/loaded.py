"""A job as loaded by one process, for comparison with the job as loaded by another process: a digest of each part."""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from txbatch.core.errors import JobDiffers, JobLoadsDifferently


@dataclass(frozen=True, slots=True)
class Loaded:
    """A job as loaded by one process: the process's version of Python, and each part with a digest.

    `variables` are the variables of the process's environment named in the job's files.
    """

    python: str
    parts: Sequence[tuple[str, str]]
    variables: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the loaded job as JSON."""
        return {"python": self.python, "parts": list(map(list, self.parts)), "variables": list(self.variables)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Loaded:
        """Return the loaded job of a JSON value."""
        return cls(value["python"], [(name, digest) for name, digest in value["parts"]], value["variables"])

    def differs_from(self, other: Loaded) -> str | None:
        """Return the first part that differs in `other`; None if all parts are the same."""
        for one, there in zip_longest(self.parts, other.parts, fillvalue=("nothing", "")):
            if one != there:
                return one[0] if one[0] == there[0] else f"{one[0]}, which is {there[0]} there"
        return None


def check_same(asked: Loaded, here: Loaded, given: Container[str], of: str) -> None:
    """Refuse a job that loads differently here than where the job was checked. `given` are the variables known here.

    Raise DefinitionError if a variable named in the job's files is not given. If all are given, raise TransientError: a file
    beside the job may have changed.
    """
    differs = asked.differs_from(here)
    if differs is None:
        return
    what = f"{of}: the job is another one in Spark than where it was checked: {differs}, differs"
    missing = [name for name in asked.variables if name not in given]
    if missing:
        raise JobDiffers(
            f"{what}; the job's files name {', '.join(missing)}, which Spark was not given: name what Spark needs in "
            "TXBATCH_SPARK_ENVIRONMENT, or read no such variable while the job is loaded"
        )
    raise JobLoadsDifferently(
        f"{what}; emit again, and if that helps not, let the job load alike each time: by no clock, no __name__, and by no "
        "variable or file that is another one in Spark"
    )


def python_version() -> str:
    """Return the version of Python, without the patch: within a version the same source is the same code."""
    return "{}.{}".format(*sys.version_info)
