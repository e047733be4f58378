"""What people look at: a table in the terminal, and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

COLOURS = {"aim reached": "#2a9d8f", "reached": "#8ab17d", "missed": "#e76f51"}
TEXT: dict[str, Any] = {
    "va": "center",
    "fontsize": 8,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85},
}
RATIO_MOST = 2.0  # of a bar: a miss by more is cut, its number says how much


def table(content: dict[str, Any]) -> None:
    """Every figure with its bounds; below, which contestants were left out."""
    shown = Table("figure", "ratio", "at least", "aim", "verdict")
    for figure in _figures(content):
        sign = "≥" if figure["higher"] else "≤"
        bounds = [f"{sign} {figure[bound]}" if figure[bound] else "" for bound in ("at_least", "aim")]
        shown.add_row(figure["name"], f"{figure['ratio']:.2f}", *bounds, figure["verdict"])
    console = Console()
    console.print(shown)
    for name, section in content["sections"].items():
        for contestant, why in section.get("left_out", {}).items():
            console.print(f"left out of {name}: {contestant}: {why}")
    took = {name: section["took"] for name, section in content["sections"].items() if "took" in section}
    console.print(f"{sum(took.values()) / 60:.0f} min: {', '.join(f'{name} {each} s' for name, each in took.items())}")


def plot(content: dict[str, Any], path: Path) -> None:
    """Above, one bar a promise: its ratio as a part of the bound that it has to keep; beyond 1 it is missed. Below, ours
    against others.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = _figures(content)
    promised = [figure for figure in found if figure["at_least"]]
    others = [figure for figure in found if not figure["at_least"]]
    sizes = [max(len(rows), 1) for rows in (promised, others)]
    drawing, (above, below) = plt.subplots(
        2, figsize=(11, 0.34 * sum(sizes) + 2.2), height_ratios=sizes, layout="constrained"
    )
    _promises(above, promised)
    _others(below, others)
    machine = content["machine"]
    drawing.suptitle(
        f"{content['commit']}, {machine['cpu']}, {machine['cores']} cores, {content['began'][:10]}", fontsize=10
    )
    drawing.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(drawing)


def _figures(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [figure for section in content["sections"].values() for figure in section["figures"]]


def _promises(axes: Any, figures: list[dict[str, Any]]) -> None:
    parts = [(f["at_least"] / f["ratio"]) if f["higher"] else (f["ratio"] / f["at_least"]) for f in figures]
    axes.barh(
        range(len(parts)), [min(part, RATIO_MOST) for part in parts], color=[COLOURS[f["verdict"]] for f in figures]
    )
    for row, (figure, part) in enumerate(zip(figures, parts, strict=True)):
        sign = "≥" if figure["higher"] else "≤"
        told = f"{_number(figure['ratio'])} (promised {sign} {figure['at_least']:g})"
        axes.text(min(part, RATIO_MOST) + 0.02, row, told, **TEXT)
    axes.axvline(1, color="#264653", linewidth=1)
    _rows(axes, figures)
    axes.set_xlim(0, RATIO_MOST * 1.3)
    axes.set_xlabel("measured / promised: left of the line it is kept", fontsize=8)


def _others(axes: Any, figures: list[dict[str, Any]]) -> None:
    axes.barh(range(len(figures)), [f["ratio"] - 1 for f in figures], left=1, color="#8d99ae")
    for row, figure in enumerate(figures):
        axes.text(max(figure["ratio"], 1) * 1.03, row, _number(figure["ratio"]), **TEXT)
    axes.axvline(1, color="#264653", linewidth=1)
    _rows(axes, figures)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    for ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        ticks(lambda value, _: f"{value:g}")
    axes.set_xlabel("ratio, logarithmic; nothing is promised of these", fontsize=8)


def _rows(axes: Any, figures: list[dict[str, Any]]) -> None:
    axes.set_yticks(range(len(figures)), [figure["name"] for figure in figures], fontsize=8)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.tick_params(axis="x", which="both", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _number(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.3g}"
