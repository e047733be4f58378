"""The pictures of docs/explanation and docs/architecture.md: small, for light and dark, each with a text alternative.

    .venv/bin/python tests/pictures.py    # writes them to docs/images anew

A story is told by one picture a step: the frame is the same, and what the step changes is marked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "images"
# Of a letter, in the two sizes of text.
WIDTHS = {"head": 7.8, "text": 6.3}
STYLE = """<style>
text{font:12px system-ui,sans-serif;fill:#1f2937}
.head{font-weight:600;font-size:13px}
.box{fill:#f3f4f6;stroke:#6b7280}
.new{fill:#fef3c7;stroke:#b45309;stroke-width:2}
.gone{fill:none;stroke:#6b7280;stroke-dasharray:4 3}
.border{fill:none;stroke:#2563eb;stroke-dasharray:8 4}
.late{fill:#fecaca;stroke:#b91c1c}
.line{fill:none;stroke:#6b7280;stroke-width:1.5}
.tip{fill:#6b7280}
@media (prefers-color-scheme:dark){
text{fill:#e5e7eb}
.box{fill:#1f2937;stroke:#9ca3af}
.new{fill:#422006;stroke:#f59e0b}
.gone{stroke:#9ca3af}
.border{stroke:#60a5fa}
.late{fill:#450a0a;stroke:#f87171}
.line{stroke:#9ca3af}
.tip{fill:#9ca3af}
}
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>"""


@dataclass(frozen=True)
class Box:
    """A box with a heading and lines of text."""

    x: int
    y: int
    width: int
    height: int
    head: str = ""
    lines: tuple[str, ...] = ()
    look: str = "box"

    def fits(self) -> bool:
        """Whether all text lies within the box, by the width of a usual letter."""
        widths = [len(self.head) * WIDTHS["head"], *(len(line) * WIDTHS["text"] for line in self.lines)]
        return max(widths) <= self.width - 12 and 24 + 16 * len(self.lines) <= self.height + 8

    def drawn(self) -> Iterator[str]:
        """Yield the box and its text."""
        yield f'<rect class="{self.look}" x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="5"/>'
        if self.head:
            yield said(self.x + 8, self.y + 18, self.head, "head")
        for number, line in enumerate(self.lines, 1):
            yield said(self.x + 8, self.y + 18 + 16 * number, line)


@dataclass(frozen=True)
class Line:
    """A line through points, with an arrow at its end."""

    points: tuple[tuple[int, int], ...]
    tip: bool = True

    def fits(self) -> bool:
        """A line has no text."""
        return True

    def drawn(self) -> Iterator[str]:
        """Yield the line."""
        points = " ".join(f"{x},{y}" for x, y in self.points)
        tip = ' marker-end="url(#tip)"' if self.tip else ""
        yield f'<polyline class="line" points="{points}"{tip}/>'


@dataclass(frozen=True)
class Said:
    """A text that is in no box."""

    x: int
    y: int
    text: str
    look: str = ""

    def fits(self) -> bool:
        """Nothing bounds such a text but the picture."""
        return True

    def drawn(self) -> Iterator[str]:
        """Yield the text."""
        yield said(self.x, self.y, self.text, self.look)


Part = Box | Line | Said


@dataclass(frozen=True)
class Picture:
    """A picture: its name, what it shows in a sentence, its size and its parts."""

    name: str
    told: str
    width: int
    height: int
    parts: tuple[Part, ...]

    def svg(self) -> str:
        """Return the picture as it stands in its file."""
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        drawn = [line for part in self.parts for line in part.drawn()]
        begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="told">'
        return "\n".join([begin, f'<title id="told">{escape(self.told)}</title>', STYLE, *drawn, "</svg>", ""])


def said(x: int, y: int, text: str, look: str = "") -> str:
    """Return a text at a place."""
    kind = f' class="{look}"' if look else ""
    return f'<text{kind} x="{x}" y="{y}">{escape(text)}</text>'


# ---- how a batch counts once: the same frame in each step

FRAME = {
    "source": Box(10, 40, 130, 90, "Source"),
    "first": Box(190, 40, 165, 75, "Attempt 2:1"),
    "second": Box(190, 145, 165, 75, "Attempt 2:2"),
    "batch": Box(420, 64, 195, 75, "Ledger: txid 2"),
    "state": Box(420, 155, 195, 55, "State: report.words"),
}
FLOWS = {
    ("source", "first"): Line(((142, 78), (186, 78))),
    ("source", "second"): Line(((75, 132), (75, 182), (186, 182))),
    ("first", "batch"): Line(((357, 78), (416, 92))),
    ("second", "batch"): Line(((357, 182), (385, 182), (385, 112), (416, 112))),
    ("batch", "state"): Line(((517, 141), (517, 151))),
}
POSTGRES = Box(405, 40, 225, 185, "PostgreSQL", look="border")
Flow = tuple[str, str]


@dataclass(frozen=True)
class Step:
    """A step of a story: what it is, which boxes it changes and to which lines, and along which arrow."""

    told: str
    changed: Mapping[str, tuple[str, ...]]
    flow: Flow | None = None


def story(name: str, before: Mapping[str, tuple[str, ...]], steps: Iterable[Step]) -> Iterator[Picture]:
    """Yield a picture a step: all boxes in their places, the changed ones marked."""
    lines = {place: before.get(place, ()) for place in FRAME}
    for number, step in enumerate(steps, 1):
        lines |= step.changed
        boxes = [
            replace(box, lines=lines[place], look=look_of(place, lines[place], step)) for place, box in FRAME.items()
        ]
        flow = (FLOWS[step.flow],) if step.flow else ()
        caption = Said(10, 22, f"{number}. {step.told}", "head")
        yield Picture(f"{name}-{number}", told(step, boxes), 640, 240, (caption, POSTGRES, *boxes, *flow))


def told(step: Step, boxes: Iterable[Box]) -> str:
    """Return a step in words: what it is, and what each box then holds."""
    held = [f"{box.head.removeprefix('Ledger: ')}: {', '.join(box.lines)}" for box in boxes if box.lines]
    return f"{step.told}. {'; '.join(held)}"


def look_of(place: str, lines: tuple[str, ...], step: Step) -> str:
    """Return how a box looks: changed, there, or not there yet."""
    return "new" if place in step.changed else "box" if lines else "gone"


BEFORE = {
    "source": ("a, b: in txid 1", "c, d: new"),
    "batch": ("not there",),
    "state": ("dog 1",),
}
EMITTING = {**BEFORE, "first": ("reads c, d",), "batch": ("planned: c, d", "fence 2:1")}
EMITTED = {
    **BEFORE,
    "first": ("killed",),
    "second": ("dog +2", "manifest"),
    "batch": ("emitted: c, d", "fence 2:2"),
}

ONE_BATCH = (
    Step("Two files are new", {"source": BEFORE["source"]}),
    Step("The plan is stored: txid 2 is c and d, for good", {"batch": ("planned: c, d", "no attempt yet")}),
    Step("An attempt begins: its number is the fence", {"batch": ("planned: c, d", "fence 2:1")}),
    Step("Spark reads c and d, and stages what they add", {"first": ("dog +2", "manifest")}, ("source", "first")),
    Step("The ledger records the manifest", {"batch": ("emitted: c, d", "fence 2:1")}, ("first", "batch")),
    Step(
        "One transaction: state, offsets and batch change, or nothing",
        {"batch": ("committed", "by 2:1"), "state": ("dog 3",)},
        ("batch", "state"),
    ),
    Step("After the commit, staged files go", {"first": ("removed",)}),
)
KILLED_EMIT = (
    Step("An attempt reads its files", {"first": ("reads c, d",)}, ("source", "first")),
    Step("Its task is killed; Spark's driver may live on", {"first": ("no task", "a zombie, perhaps")}),
    Step("The retry takes a higher number: the fence moves", {"batch": ("planned: c, d", "fence 2:2")}),
    Step("The retry reads the same files again", {"second": ("dog +2", "manifest")}, ("source", "second")),
    Step("The zombie offers its manifest: not the newest, refused", {"first": ("refused",)}, ("first", "batch")),
    Step(
        "The retry commits: c and d count once",
        {"batch": ("committed", "by 2:2"), "state": ("dog 3",)},
        ("second", "batch"),
    ),
)
KILLED_COMMIT = (
    Step(
        "The commit writes, and reports show nothing of it yet",
        {"state": ("dog 1", "3 is not committed")},
        ("second", "batch"),
    ),
    Step("It is killed before COMMIT: PostgreSQL takes all back", {"state": ("dog 1",)}),
    Step(
        "The retry commits the same staged files",
        {"batch": ("committed", "by 2:2"), "state": ("dog 3",)},
        ("second", "batch"),
    ),
    Step("Killed after COMMIT: its retry reads the ledger", {"batch": ("committed", "nothing is left to do")}),
)
DEAD_RUN = {
    **BEFORE,
    "first": ("run A: killed",),
    "second": ("run B: waits",),
    "batch": ("planned by run A", "lease of run A"),
}
ADOPTION = (
    Step("Run A plans txid 2, and dies", {"first": ("run A: killed",)}),
    Step("The lease of run A ends: txid 2 is abandoned", {"batch": ("planned by run A", "lease is over")}),
    Step("Run B adopts txid 2, with the plan of run A", {"batch": ("planned by run A", "adopted by run B")}),
    Step("Run B reads c and d", {"second": ("run B: dog +2", "manifest")}, ("source", "second")),
    Step(
        "Run B commits txid 2; then it plans its own",
        {"batch": ("committed", "by 2:2 of run B"), "state": ("dog 3",)},
        ("second", "batch"),
    ),
)


def stories() -> Iterator[Picture]:
    """Yield the pictures of the stories."""
    yield from story("one-batch", BEFORE, ONE_BATCH)
    yield from story("killed-emit", EMITTING, KILLED_EMIT)
    yield from story("killed-commit", EMITTED, KILLED_COMMIT)
    yield from story("adoption", DEAD_RUN, ADOPTION)


# ---- single pictures


def trust() -> Picture:
    """Which process holds which password, and where the borders of trust are."""
    airflow = Box(10, 20, 215, 200, "Airflow's machines", look="border")
    spark = Box(250, 20, 190, 200, "Spark's processes", look="border")
    server = Box(465, 20, 165, 200, "PostgreSQL", look="border")
    parts = (
        airflow,
        spark,
        server,
        Box(22, 48, 190, 56, "Scheduler, API server", ("reader's password: pages",)),
        Box(22, 130, 190, 72, "Worker: a task", ("writer's password", "starts Spark's driver")),
        Box(262, 48, 165, 72, "Executors", ("no password of ours", "write staged files")),
        Box(262, 140, 165, 62, "Driver", ("a source's password,", "if its job reads one")),
        Box(477, 48, 140, 56, "Ledger, states", ("writer: tasks",)),
        Box(477, 130, 140, 72, "Views: report", ("reader: people,", "pages")),
        Line(((117, 204), (117, 229), (547, 229), (547, 224))),
        Line(((214, 186), (258, 186))),
        Line(((344, 138), (344, 124))),
    )
    told = "Processes and borders of trust: tasks hold the writer's password, Spark holds none of the ledger, people read views"
    return Picture("trust", told, 640, 238, parts)


TASKS = ("initialize_transaction", "emit_batch", "commit", "success")


def four_tasks() -> Picture:
    """One batch as a sequence, with the four tasks of its run."""
    does = (
        ("plans what comes next,", "stores the plan as txid 7"),
        ("takes attempt 7:2, submits", "Spark, records the manifest"),
        ("waits for its turn, compares the", "fence, writes all or nothing"),
        ("removes staged files,", "sends the asset event"),
    )
    parts: list[Part] = [Box(475, 14, 155, 300, "PostgreSQL", look="border")]
    rows = ("plan", "fence, manifest", "state, offsets", "")
    for number, (task, lines, row) in enumerate(zip(TASKS, does, rows, strict=True)):
        top = 20 + 74 * number
        parts.append(Box(10, top, 215, 62, task, lines))
        if number < 3:
            parts += [Line(((117, top + 62), (117, top + 72))), Box(487, top + 18, 130, 36, row)]
            parts.append(Line(((225, top + 36), (483, top + 36))))
    parts += [Box(270, 78, 160, 44, "spark-submit", ("partials, then manifest",)), Line(((225, 104), (266, 104)))]
    told = "One batch by four tasks: initialize_transaction, emit_batch with Spark, commit and success, and what each writes"
    return Picture("four-tasks", told, 640, 325, tuple(parts))


def past() -> Picture:
    """What restate, as-of, gc and rebuild touch."""
    parts = (
        Box(10, 30, 170, 60, "State", ("a row a key: dog 6",)),
        Box(235, 30, 235, 92, "Contributions", ("dog: txid 4 +2", "dog: txid 5 +1", "dog: txid 6 +2, for txid 5")),
        Box(525, 30, 105, 60, "Base", ("dog 2: to 3",)),
        Line(((233, 60), (184, 60))),
        Line(((523, 60), (474, 60))),
        Box(10, 160, 170, 64, "restate", ("adds a contribution,", "folds its keys anew"), "new"),
        Box(190, 160, 140, 64, "as-of, why", ("fold contributions", "up to a txid"), "new"),
        Box(340, 160, 140, 64, "gc", ("folds old ones", "into the base"), "new"),
        Box(490, 160, 140, 64, "rebuild", ("counts all three", "anew, then swaps"), "new"),
        Line(((95, 158), (95, 132), (260, 132), (260, 124))),
        Line(((285, 124), (285, 156))),
        Line(((410, 124), (410, 156))),
        Line(((560, 158), (560, 94))),
        Said(10, 18, "dog 6 = base 2 + txid 4: 2 + txid 6: 2, in the place of txid 5", "head"),
    )
    told = "State, contributions and base of one key, and which of them restate, as-of, gc and rebuild touch"
    return Picture("past", told, 640, 235, parts)


def watermark() -> Picture:
    """A watermark, and what becomes of late records."""
    parts = (
        Said(10, 20, "Event time", "head"),
        Line(((10, 70), (625, 70))),
        Box(40, 44, 170, 26, "9-10: closed", look="gone"),
        Box(220, 44, 170, 26, "10-11: open", look="box"),
        Box(400, 44, 170, 26, "11-12: open", look="box"),
        Line(((334, 34), (334, 100)), tip=False),
        Said(338, 100, "watermark: newest record, less delay", "head"),
        Box(50, 118, 170, 26, "late: window ended", look="late"),
        Box(240, 118, 150, 26, "in time", look="new"),
        Line(((145, 118), (145, 74))),
        Line(((250, 118), (250, 74))),
        Box(10, 165, 195, 60, 'late="merge"', ("counts in its window;", "handed on as a change"), "box"),
        Box(222, 165, 195, 60, 'late="drop"', ("does not count;", "the batch has its number"), "box"),
        Box(434, 165, 195, 60, 'late="side"', ("does not count; kept as a", "row of report.<state>_late"), "box"),
    )
    told = "A watermark between windows: records of a window that has ended are late, and merged, dropped or kept aside"
    return Picture("watermark", told, 640, 235, parts)


def sessions() -> Picture:
    """Pieces of sessions, and where they come together."""
    parts = (
        Said(10, 20, "A session with a gap of 30 minutes, over two batches", "head"),
        Box(10, 40, 250, 60, "txid 1", ("records 23:10, 23:35, 23:50",)),
        Box(300, 40, 250, 60, "txid 2", ("records 00:05, 00:20",)),
        Line(((135, 102), (135, 124))),
        Line(((425, 102), (425, 124))),
        Box(10, 128, 250, 44, "piece 23:10 to 23:50", ("3 records",), "new"),
        Box(300, 128, 250, 44, "piece 00:05 to 00:20", ("2 records",), "new"),
        Line(((135, 174), (135, 200), (250, 200), (250, 212))),
        Line(((425, 174), (425, 200), (310, 200), (310, 212))),
        Box(140, 216, 280, 44, "read: one session, 23:10 to 00:20", ("5 records",)),
        Said(430, 240, "15 minutes apart"),
    )
    told = (
        "Each batch adds a piece of a session; where the state is read, pieces no more than a gap apart are one session"
    )
    return Picture("sessions", told, 640, 275, parts)


def batch_states() -> Picture:
    """The states of a batch."""
    parts = (
        Box(10, 40, 130, 60, "planned", ("records are fixed",)),
        Box(210, 40, 150, 60, "emitted", ("staged, manifest in",)),
        Box(430, 40, 150, 60, "committed", ("counts, for good",), "new"),
        Box(210, 160, 150, 60, "aborted", ("records are free",)),
        Box(430, 160, 150, 60, "replaced", ("a restate counts",)),
        Line(((142, 60), (206, 60))),
        Said(150, 52, "emit"),
        Line(((362, 60), (426, 60))),
        Said(368, 52, "commit"),
        Line(((250, 38), (250, 24), (100, 24), (100, 36))),
        Said(130, 16, "a new attempt"),
        Line(((75, 102), (75, 190), (206, 190))),
        Said(90, 182, "abort"),
        Line(((285, 102), (285, 156))),
        Said(292, 134, "abort"),
        Line(((505, 102), (505, 156))),
        Said(512, 134, "restate"),
    )
    told = "States of a batch: planned, emitted, committed; aborted from either of the first two; replaced by a restate"
    return Picture("batch-states", told, 640, 235, parts)


LAYERS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("orchestration", "Airflow calls"), ("cli", "a person calls"), ("ui", "a browser calls")),
    (("local", "the demos on one machine"), ("testing", "tests of jobs and spouts")),
    (("wiring", "gives PostgreSQL, staging area, Spark"), ("memory", "the ledger's twin")),
    (("run", "a run's way to its commit"), ("launch", "spark-submit, Spark's driver")),
    (("spouts", "sources that come with txbatch"),),
    (
        ("postgres", "rows"),
        ("spark", "an engine"),
        ("direct", "an engine"),
        ("storage", "folders"),
        ("formats", "files"),
    ),
    (("ledger", "transactions, over the rows of either store"),),
    (("core", "decides, never does; standard library alone"),),
)


def layers() -> Picture:
    """The layers of the code: those of pyproject.toml, without the small modules."""
    parts: list[Part] = []
    for number, row in enumerate(LAYERS):
        top, width = 10 + 60 * number, (620 - 10 * (len(row) - 1)) // len(row)
        look = "new" if row is LAYERS[-1] else "box"
        parts += [
            Box(10 + (width + 10) * at, top, width, 44, head, (line,), look) for at, (head, line) in enumerate(row)
        ]
        if number:
            parts.append(Line(((320, top - 15), (320, top - 2))))
    told = "Layers of txbatch, from callers to the core: each imports only what is below, and the core alone decides"
    return Picture("layers", told, 640, 494, tuple(parts))


def pictures() -> list[Picture]:
    """Return all pictures."""
    return [*stories(), trust(), four_tasks(), past(), watermark(), sessions(), batch_states(), layers()]


if __name__ == "__main__":
    for each in pictures():
        (FOLDER / f"{each.name}.svg").write_text(each.svg(), encoding="utf-8")
        sys.stdout.write(f"{each.name}: {each.told}\n")
