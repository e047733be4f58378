"""What windows cost Spark, against date_trunc by hand in one warm session."""

from __future__ import annotations

from bench.language import warm
from bench.measure import Figure
from bench.results import Results


def measure(section: str, results: Results) -> None:
    """Seconds of wall and, under the name with CPU, of the JVM's processor time."""
    results.add(section, warm("windows.py"), FIGURES)


FIGURES = [
    Figure("tumbling hours / date_trunc by hand, CPU", "hours, CPU", "hours by hand, CPU", 1.05, 1.0),
    Figure("tumbling hours / date_trunc by hand", "hours", "hours by hand", 1.05, 1.0),
    Figure("days of a zone / date_trunc by hand, CPU", "days of a zone, CPU", "days of a zone by hand, CPU"),
    Figure("days of a zone / date_trunc by hand", "days of a zone", "days of a zone by hand"),
]
SECTIONS = {"windows": measure}
