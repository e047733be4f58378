"""What people look at: a table in the terminal, and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

COLOURS = {"aim reached": "#2a9d8f", "reached": "#8ab17d", "missed": "#e76f51"}


def table(figures: list[dict[str, Any]]) -> None:
    """Every figure with its bounds."""
    shown = Table("figure", "ratio", "at least", "aim", "verdict")
    for figure in figures:
        sign = "≥" if figure["higher"] else "≤"
        ratio = "" if figure["ratio"] is None else f"{figure['ratio']:.2f}"
        shown.add_row(
            figure["name"], ratio, f"{sign} {figure['at_least']}", f"{sign} {figure['aim']}", figure["verdict"]
        )
    Console().print(shown)


def plot(content: dict[str, Any], path: Path) -> None:
    """One bar a figure: its ratio as a part of the bound that it has to keep; beyond 1 it is missed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figures = [each for section in content["sections"].values() for each in section["figures"] if each["ratio"]]
    parts = [(f["at_least"] / f["ratio"]) if f["higher"] else (f["ratio"] / f["at_least"]) for f in figures]
    drawing, axes = plt.subplots(figsize=(9, 0.42 * len(figures) + 1.4), layout="constrained")
    axes.barh([f["name"] for f in figures], parts, color=[COLOURS[f["verdict"]] for f in figures])
    for row, (figure, part) in enumerate(zip(figures, parts, strict=True)):
        axes.text(part, row, f" {figure['ratio']:.2f}", va="center", fontsize=8)
    axes.axvline(1, color="#264653", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("ratio measured / ratio promised (left of the line: kept)")
    machine = content["machine"]
    axes.set_title(
        f"{content['commit']}, {machine['cpu']}, {machine['cores']} cores, {content['began'][:10]}", fontsize=9
    )
    drawing.savefig(path, metadata={"Date": None})
    plt.close(drawing)
