"""What becomes a run's note, and how long what a form takes may be."""

from __future__ import annotations

import json
import re
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import Param
from airflow.sdk.execution_time.comms import DagRunResult

import txbatch_plugin
from txbatch import __version__
from txbatch.core.batch.transaction import BatchKind, Run
from txbatch.core.errors import BadRecord, PartitionUnreadable, RecordsGone, SpoutFailed, TxbatchError, Unavailable
from txbatch.core.naming import naming_stream
from txbatch.error_pages import advise
from txbatch.orchestration import catching_up, operators, restating, result, waiting
from txbatch.orchestration.dag import _choosing
from txbatch.orchestration.failing import notes
from txbatch.orchestration.failing.for_airflow import failing_as_airflow
from txbatch.orchestration.failing.outages import outages_waited_for
from txbatch.orchestration.trigger import AskAgainTrigger


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("txid 7: 914 records", "txid 7: 914 records"),
        (json.dumps("txid 7"), "txid 7"),
        ("a\n\x1b[2Jb", "a\\n\\x1b[2Jb"),
        ({"__classname__": "airflow.sdk.Asset"}, None),
        (json.dumps({"__classname__": "airflow.sdk.Asset"}), None),
        ("7", None),
        (None, None),
    ],
)
def test_a_note_is_one_printable_line_of_text_or_none(value: Any, line: str | None) -> None:
    assert txbatch_plugin.line_of(value) == line


def test_no_text_of_a_form_is_of_any_length() -> None:
    topology: Any = SimpleNamespace(parameters=(), by_interval=True)
    params: dict[str, Param] = {**catching_up.params(topology), **restating.params(()), "shop": _choosing("shop")}
    texts = {name: each.schema for name, each in params.items() if "string" in each.schema["type"]}
    assert {name for name, schema in texts.items() if "maxLength" not in schema} == set()
    assert {"catch_up", "restate", "why", "shop"} <= texts.keys()


HELD: dict[str, object] = {"topology": "sales", "txid": 8}


def noted(error: TxbatchError, held: dict[str, object] = HELD, tried: int = 1, tries: int = 1) -> str | None:
    return txbatch_plugin.line_of(notes.note(error, advise(error, held, in_airflow=True), tried, tries))


def shown(error: TxbatchError, tried: int = 1, tries: int = 1) -> str:
    """What lists of runs show of the note."""
    return f"{txbatch_plugin.MARK}{noted(error, HELD, tried, tries)}"[:120]


def test_the_note_of_a_failed_run_is_one_line_with_the_command_that_comes_next() -> None:
    told = noted(RecordsGone("sales 8:1: line 7"))
    assert told == "failed: TX205 (no retry helps): sales 8:1: line 7; next: txbatch abort sales 8 --why 'after TX205'"


@pytest.mark.parametrize(
    ("error", "held"),
    [(BadRecord("line 7"), {}), (BadRecord("line 7: see `txbatch why sales a`"), HELD)],
    ids=["no txid", "a command of its own"],
)
def test_a_note_without_a_command(error: TxbatchError, held: dict[str, object]) -> None:
    assert noted(error, held) == f"failed: {error}"


def test_a_note_has_room_for_a_command_that_fits() -> None:
    command = "txbatch abort sales 8 --why 'after TX205'"
    with_command, without = noted(RecordsGone("x" * 650)), noted(RecordsGone("x" * 720))
    assert with_command is not None
    assert without is not None
    assert with_command.endswith(f"x; next: {command}")
    assert len(txbatch_plugin.MARK + with_command) <= txbatch_plugin.LENGTH_MAX
    assert without.endswith("x")
    assert f"...; next: {command} | TX205 (no retry helps): xxx" in without


PATH = "/var/lib/a customer's data/in/2013/01/2013-01-03.csv"
LONG = f"sales: txid 8: {PATH}, line 7: a quote is not closed within 64 MB; mend the file, then run again; or abort"


def test_the_first_characters_of_a_note_say_what_is_wrong_and_what_to_do() -> None:
    """Lists of runs show 120: no absolute path is in front of the file's name and the line. The whole text follows."""
    told = shown(BadRecord(LONG))
    assert "txid 8: " in told
    assert "2013-01-03.csv, line 7: a quote is not" in told
    assert "; mend the file, then run again" in told
    whole = noted(BadRecord(LONG))
    assert whole is not None
    assert LONG in whole


@pytest.mark.parametrize("length", [0, 30, 60, 100, 1_000])
def test_what_to_do_is_seen_however_long_the_reason_is(length: int) -> None:
    named = shown(RecordsGone(f"{PATH} {'x' * length}"))
    assert named.startswith("txbatch: failed: TX205 ")
    assert "txbatch abort sales 8 --why 'after TX205'" in named
    worded = shown(RecordsGone(f"it is gone {'x' * length}; restore {'y' * length}"))
    assert "it is gone" in worded
    assert "; restore" in worded


def test_a_note_names_no_server() -> None:
    where = 'connection to server at "db.internal" (10.0.0.1), port 5432 failed: '
    for more in ("", "x" * 200):
        told = noted(Unavailable(f"{where}Connection refused {more}; see `txbatch doctor`"))
        assert told is not None
        assert "Connection refused" in told
        assert not [each for each in ("db.internal", "10.0.0.1", "5432") if each in told]


def test_the_note_of_a_task_that_is_tried_again_says_so() -> None:
    away, bad = PartitionUnreadable("north is away"), BadRecord("line 7")
    assert shown(away, 2, 4).startswith("txbatch: tried again (try 2 of 4): TX201")
    assert shown(away, 4, 4).startswith("txbatch: failed after 4 tries: TX201")
    assert shown(bad, 2, 4).startswith("txbatch: failed: TX301")


def test_the_log_of_a_task_has_the_error_and_its_advice(caplog: pytest.LogCaptureFixture) -> None:
    pushed = dict[str, str]()
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))}
    error = PartitionUnreadable("sales 8:1: north is away")
    with pytest.raises(PartitionUnreadable), failing_as_airflow(context, topology="sales", job="jobs/sales.py"):
        raise error
    assert caplog.messages[-4:] == [
        str(error),
        "Is any number wrong? No: the attempt failed, and nothing of its batch is committed.",
        "Next: txbatch batches sales --attempts",
        "More: txbatch explain TX201",
    ]
    assert pushed == {result.XCOM_KEY: f"failed: {error}; next: txbatch batches sales --attempts"}


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("left_out", "partition 03 is left out since txid 2: a later batch reads all of it"),
        ("filled", "partition 03 is read again, with all that was left out since txid 2"),
    ],
)
def test_a_note_ends_with_the_holes_that_a_batch_leaves_or_fills(
    monkeypatch: pytest.MonkeyPatch, what: str, told: str
) -> None:
    row = {"txid": 7, "interval_start": None, "interval_end": None, "attempts": 1, "keys": {"n": 2}, "records": 9}
    hole = {"what": what, "stream": "in", "partitions": ["03"], "many": 1, "since_txid": 2}
    reader = SimpleNamespace(batches_by_txid=lambda *_: [row], holes_of=lambda *_: [hole])
    monkeypatch.setattr("txbatch.wiring.reader_beside", lambda _: reader)
    steps: Any = SimpleNamespace(ledger=None, job=SimpleNamespace(topology=SimpleNamespace(name="sales")))
    batch: Any = SimpleNamespace(topology="sales", txid=7, kind="ordinary", replaced_by=None)
    context: Any = {"dag": SimpleNamespace(timetable=None, task_dict={})}
    task: Any = SimpleNamespace()
    line = operators.TransactionOperator.counted(task, steps, batch, context)
    assert line == f"txid 7: 9 records, 2 keys, 1 attempt; of stream in, {told}"


def context_of(pushed: dict[str, str], **of_try: int) -> Any:
    return {"ti": SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}), **of_try)}


def fail(error: TxbatchError) -> None:
    """A task that fails, for an error with another one behind it."""
    with failing_as_airflow(context_of({}), topology="sales"):
        try:
            int("x")
        except ValueError as cause:
            raise error from cause


@pytest.mark.parametrize("kind", [PartitionUnreadable, BadRecord])
def test_what_airflow_prints_of_an_error_ends_with_its_sentence(kind: type[TxbatchError]) -> None:
    """Airflow's UI shows an error, its frames, then each error behind: there is none, and hardly a frame of txbatch."""
    with pytest.raises(Exception, match="north is away") as raised:
        fail(kind("north is away"))
    printed = traceback.format_exception(raised.value)
    assert (raised.value.__cause__, raised.value.__suppress_context__) == (None, True)
    assert printed[-1].endswith(f"{kind('north is away')}\n")
    assert "ValueError" not in "".join(printed)
    assert [frame.name for frame in raised.traceback][1:] == ["fail", "__exit__"]


def test_the_frames_of_a_users_own_spout_stand_before_the_sentence(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SpoutFailed), failing_as_airflow(context_of({}), topology="sales"), naming_stream("stream 'in'"):
        raise KeyError("of the spout")
    own, sentence, *_ = caplog.records
    assert own.exc_info is not None
    assert own.getMessage() == "'of the spout'"
    assert sentence.getMessage().startswith("TX209 (try again): stream 'in' raised KeyError")


def test_what_fails_before_the_note_of_success_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noted, a retry would skip, and no event would be sent."""
    noted = list[object]()

    def away(*_: object) -> NoReturn:
        raise Unavailable("the ledger does not answer")

    batch = SimpleNamespace(kind=BatchKind.RESTATE, txid=7)
    steps: Any = SimpleNamespace(batch_of=lambda run: batch, success=noted.append)
    monkeypatch.setattr(restating, "runs", away)
    task: Any = SimpleNamespace(since=lambda *_: "")
    waiting: Any = SimpleNamespace(context={})
    for each in (task, SimpleNamespace(since=away)):
        with pytest.raises(Unavailable):
            operators.SuccessOperator.step(each, steps, Run("a"), waiting)
    assert noted == []


def test_an_error_that_nobody_expects_keeps_its_frames() -> None:
    with pytest.raises(ZeroDivisionError) as raised, failing_as_airflow(context_of({})):
        1 / 0  # noqa: B018
    assert raised.traceback[-1].name == "test_an_error_that_nobody_expects_keeps_its_frames"


@pytest.mark.parametrize(
    ("note", "again"),
    [
        ("txbatch: failed: TX201 north", "txbatch: tried again; before: failed: TX201 north"),
        ("txbatch: tried again; before: x", "txbatch: tried again; before: x"),
        ("of a person", "of a person"),
        (None, None),
    ],
)
def test_the_note_of_a_cleared_run_says_that_it_is_tried_again(
    note: str | None, again: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlalchemy.orm.object_session", lambda run: SimpleNamespace(no_autoflush=nullcontext()))
    run: Any = SimpleNamespace(note=note)
    txbatch_plugin.RunNotes().on_dag_run_running(run)
    assert run.note == again


@pytest.mark.parametrize(
    "text", ["/a" * 2_000, "/a b" * 1_000, "'/" * 2_000, " /a " * 1_000, "/" * 4_000, "a:/" * 1_300]
)
def test_a_text_of_slashes_is_no_long_search(text: str) -> None:
    began = time.process_time()
    notes.without_folders(f"{text} ")
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("line", "waited", "told"),
    [
        ("txid 7: 1 record", "waited 12 min for the ledger", "txid 7: 1 record; waited 12 min for the ledger"),
        ("txid 7: 1 record", None, "txid 7: 1 record"),
        ("waited 12 min for the ledger", "waited 12 min for the ledger", "waited 12 min for the ledger"),
        (None, "waited 12 min for the ledger", None),
    ],
)
def test_a_note_says_how_long_the_run_waited_for_the_ledger(
    line: str | None, waited: str | None, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {txbatch_plugin.XCOM_KEY: line, txbatch_plugin.WAITED_KEY: waited}
    monkeypatch.setattr(txbatch_plugin, "_newest", lambda run, key: left[key])
    run: Any = SimpleNamespace(note=None, dag=SimpleNamespace(tasks=[]))
    txbatch_plugin.RunNotes().on_dag_run_failed(run)
    assert run.note == (told and f"txbatch: {told}")
    assert (result.XCOM_KEY, result.WAITED_KEY) == (txbatch_plugin.XCOM_KEY, txbatch_plugin.WAITED_KEY)


BY_MARK = "marked by hand: a mark commits nothing; clear the run to go on"
WITHOUT_EVENT = "marked by hand after the commit of txid 7: no asset event was sent; clear the task success to send one"


@pytest.mark.parametrize(
    ("line", "committed", "told"),
    [
        ("txid 7: 1 record", "txid 7", "txid 7: 1 record"),
        ("nothing new", None, "nothing new"),
        ("57 of 365 batches are committed; to go on, clear the run", None, None),
        (None, None, BY_MARK),
        ("waits for the ledger since 10:00 UTC", None, f"{BY_MARK}; before: waits for the ledger since 10:00 UTC"),
        ("failed after 4 tries: TX201", None, f"{BY_MARK}; before: failed after 4 tries: TX201"),
        ("waited 12 min for the ledger", "txid 7", f"{WITHOUT_EVENT}; before: waited 12 min for the ledger"),
        (None, "txid 7", WITHOUT_EVENT),
    ],
)
def test_a_green_run_that_somebody_marked_says_so(line: str | None, committed: str | None, told: str | None) -> None:
    assert txbatch_plugin.succeeded(line, committed) == (told or line)


BY_ITSELF = "ended by a mark, a kill, a timeout or an unknown error; clear the run to go on"


@pytest.mark.parametrize(
    ("line", "committed", "told"),
    [
        ("failed: TX301 line 7", None, "failed: TX301 line 7"),
        ("57 of 365 batches are committed; to go on, clear the run", None, None),
        (None, None, f"failed: commit {BY_ITSELF}; nothing is half counted"),
        (None, "txid 7", f"failed: commit {BY_ITSELF}; committed before: txid 7"),
        ("tried again (try 1 of 4): TX201", None, f"failed: commit {BY_ITSELF}; nothing is half counted; before: {{}}"),
    ],
)
def test_a_red_run_without_an_error_says_which_task_has_ended(
    line: str | None, committed: str | None, told: str | None
) -> None:
    states = {"emit_batch": "success", "commit": "failed", "success": "upstream_failed"}
    assert txbatch_plugin.failed(line, committed, states) == (told or str(line)).format(line)


class Ends:
    """The end of a run: what its tasks have left (`newest`), their states, and what the ledger has committed."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        newest: Callable[..., str | None],
        states: dict[str, str],
        committed: str | None = None,
    ) -> None:
        monkeypatch.setattr(txbatch_plugin, "_newest", newest)
        monkeypatch.setattr(txbatch_plugin, "_states", lambda run: states)
        monkeypatch.setattr(txbatch_plugin, "_committed", lambda run: committed)

    def note(self, how: str = "on_dag_run_success", **of_run: Any) -> str | None:
        """The note of a run that ends so."""
        run: Any = SimpleNamespace(note=None, **of_run)
        getattr(txbatch_plugin.RunNotes(), how)(run)
        note: str | None = run.note
        return note


OLD = "failed: TX413 txid 1 is emitted, not committed; clear the task commit"


@pytest.mark.parametrize(
    ("states", "noted"),
    [
        (
            {"emit_batch": "failed", "commit": "upstream_failed"},
            f"failed: emit_batch {BY_ITSELF}; nothing is half counted",
        ),
        ({"emit_batch": "success", "commit": "failed"}, f"{OLD}; waited 3 min for the ledger"),
    ],
    ids=["of before the clear", "of now"],
)
def test_a_red_run_does_not_repeat_the_error_of_before_it_was_cleared(
    states: dict[str, str], noted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow keeps what a task has left until the task begins again; a task that was killed leaves nothing."""
    left = {"commit": OLD, None: OLD}

    def newest(run: object, key: str, task: str | None = None) -> str | None:
        return left.get(task) if key == txbatch_plugin.XCOM_KEY else "waited 3 min for the ledger"

    ends = Ends(monkeypatch, newest, states)
    assert ends.note("on_dag_run_failed") == f"txbatch: {noted}"


def test_a_run_that_was_marked_before_any_task_failed_says_so() -> None:
    told = txbatch_plugin.failed(None, None, {"emit_batch": "skipped", "commit": None})
    assert told == f"failed: the run {BY_ITSELF}; nothing is half counted"


@pytest.mark.parametrize(
    ("dag_id", "states", "left", "noted"),
    [
        ("sales", {"commit": "success", "success": "success"}, {}, BY_MARK),
        ("sales", {"success": "success"}, {"success": "txid 7", None: "tried again (try 1 of 4): TX202"}, "txid 7"),
        ("sales", {"success": "success"}, {"success": "txid 7", None: "already committed"}, "already committed"),
        ("sales", {"success": "skipped"}, {"success": "txid 7", None: "tried again (try 1 of 4)"}, None),
        ("sales.verify", {}, {None: "all equal"}, "all equal"),
        ("sales.verify", {}, {}, None),
    ],
    ids=["marked", "the last task ended it", "cleared", "skipped by hand", "another DAG", "another DAG without a line"],
)
def test_a_green_run_is_told_by_its_last_task(
    dag_id: str,
    states: dict[str, str],
    left: dict[str | None, str],
    noted: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that was marked at its work may leave a line behind the end of the run: that line is not the run's."""

    def newest(run: object, key: str, task: str | None = None) -> str | None:
        return left.get(task) if key == txbatch_plugin.XCOM_KEY else None

    ends = Ends(monkeypatch, newest, states)
    if dag_id == "sales":
        noted = noted or f"{BY_MARK}; before: {left[None]}"
    assert ends.note(dag=None, dag_id=dag_id, logical_date=None) == (noted and f"txbatch: {noted}")


@pytest.mark.parametrize(
    ("lines", "committed", "noted"),
    [
        (["waited 3 min for the ledger", "txid 5 would have 7 records"], None, "txid 5 would have 7 records"),
        (["waited 3 min for the ledger", "already committed as txid 7"], "txid 7", "already committed as txid 7"),
        (["waits for the ledger since 10:00 UTC"], None, f"{BY_MARK}; before: waits for the ledger since 10:00 UTC"),
    ],
    ids=["a plan", "the commit is cleared alone", "marked as skipped"],
)
def test_a_task_without_a_part_that_waited_for_the_ledger_was_not_marked(
    lines: list[str], committed: str | None, noted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a task waits, and is skipped without a line of its own: of a run that plans first, the task `commit`."""
    states = {"commit": "skipped", "success": "skipped"}
    ends = Ends(monkeypatch, lambda run, key, task=None: None if task else lines[0], states, committed)
    monkeypatch.setattr(txbatch_plugin, "_lines", lambda run: lines)
    monkeypatch.setattr(txbatch_plugin, "_waited", lambda run, line: line)
    assert ends.note() == f"txbatch: {noted}"


@pytest.mark.parametrize(
    ("committed", "of_last", "noted"),
    [
        ("txids 4 to 6", None, WITHOUT_EVENT.replace("txid 7", "txids 4 to 6")),
        ("txids 4 to 6", "txids 4 to 6: 3 batches", None),
        (None, None, None),
    ],
    ids=["the last task is marked", "the emission is cleared alone", "the run is marked"],
)
def test_a_run_that_catches_up_says_that_its_event_was_not_sent(
    committed: str | None, of_last: str | None, noted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = "3 of 3 batches are committed; to go on, clear the run"
    states = {"commit": "success", "success": "success"}
    ends = Ends(monkeypatch, lambda run, key, task=None: of_last if task else progress, states, committed)
    monkeypatch.setattr(txbatch_plugin, "_waited", lambda run, line: line)
    assert ends.note() == f"txbatch: {noted or progress}"


@pytest.mark.parametrize(
    ("operator", "told"), [(txbatch_plugin.FIRST_TASK, f"txbatch: {BY_MARK}"), ("BashOperator", None)]
)
def test_a_run_that_is_marked_in_an_airflow_that_gives_no_dag_says_so(
    operator: str, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server of Airflow 3.1."""
    monkeypatch.setattr("sqlalchemy.orm.object_session", lambda run: SimpleNamespace(no_autoflush=nullcontext()))
    monkeypatch.setattr(txbatch_plugin, "_xcoms", lambda *_: [])
    tasks = [SimpleNamespace(task_id="a", operator=operator, state="success")]
    run: Any = SimpleNamespace(note=None, dag=None, logical_date=None, get_task_instances=lambda session: tasks)
    txbatch_plugin.RunNotes().on_dag_run_success(run)
    assert run.note == told


class Notes:
    """A run's note in an Airflow whose tasks can write the note while the run works, and what the task leaves for the end."""

    def __init__(self, note: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.note, self.left = note, dict[str, str]()
        monkeypatch.setattr("txbatch.fit.present_note", lambda run: self.note)
        ti = SimpleNamespace(
            xcom_push=lambda key, value: self.left.update({key: value}), update_dagrun_note=self._write
        )
        self.context: Any = {"ti": ti, "dag_run": SimpleNamespace(dag_id="sales", run_id="a")}

    def _write(self, note: str) -> None:
        self.note = note


@pytest.mark.parametrize("before", [None, "", "txbatch: tried again; before: txid 7"])
def test_where_airflow_can_a_note_is_there_while_the_run_works(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Notes(before, monkeypatch)
    result.tell(
        run.context, "57 of 365 batches are committed; to go on, clear the run", "57 of 365 batches are committed"
    )
    assert run.note == "txbatch: 57 of 365 batches are committed"
    assert run.left == {result.XCOM_KEY: "57 of 365 batches are committed; to go on, clear the run"}
    result.tell(run.context, "waits for the ledger")
    assert run.note == "txbatch: waits for the ledger"


def test_a_note_of_a_person_is_left_alone_while_the_run_works(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Notes("do not clear this run", monkeypatch)
    result.tell(run.context, "txid 7: 9 records")
    assert run.note == "do not clear this run"
    assert run.left == {result.XCOM_KEY: "txid 7: 9 records"}


def test_a_note_while_the_run_works_is_one_line_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Notes(None, monkeypatch)
    result.tell(run.context, f"a\n\x1b[2Jb{'x' * 5_000}")
    assert run.note is not None
    assert run.note.startswith("txbatch: a\\n\\x1b[2Jb")
    assert len(run.note) <= txbatch_plugin.LENGTH_MAX
    assert (result.MARK, result.NOTE_MAX) == (txbatch_plugin.MARK, txbatch_plugin.LENGTH_MAX)


HOSTILE = "failed: TX301 '<b>' is no int; ![x](http://elsewhere/x.png) of *.csv and _x_; `txbatch why a <b>`"
AS_TEXT = (
    r"txbatch: failed: TX301 '\<b>' is no int; ![x]\(http://elsewhere/x.png) of \*.csv and \_x\_; `txbatch why a <b>`"
)


def test_a_note_shows_markup_of_a_text_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow reads notes as Markdown."""
    run = Notes(None, monkeypatch)
    result.tell(run.context, HOSTILE)
    assert run.note == AS_TEXT
    monkeypatch.setattr(txbatch_plugin, "_left", lambda run: HOSTILE)
    monkeypatch.setattr(txbatch_plugin, "_states", lambda run: {})
    ended: Any = SimpleNamespace(note=None)
    txbatch_plugin.RunNotes().on_dag_run_failed(ended)
    assert ended.note == AS_TEXT


def test_a_note_of_markup_fits_and_does_so_once_its_run_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txbatch_plugin, "_left", lambda run: "*" * 900)
    monkeypatch.setattr(txbatch_plugin, "_states", lambda run: {})
    monkeypatch.setattr("sqlalchemy.orm.object_session", lambda run: SimpleNamespace(no_autoflush=nullcontext()))
    run: Any = SimpleNamespace(note=None)
    txbatch_plugin.RunNotes().on_dag_run_failed(run)
    noted = run.note
    assert len(noted) == txbatch_plugin.LENGTH_MAX - 1  # no half of a sign
    txbatch_plugin.RunNotes().on_dag_run_running(run)
    assert run.note == f"{txbatch_plugin.AGAIN}{noted.removeprefix(txbatch_plugin.MARK)}"
    assert len(run.note) <= txbatch_plugin.NOTE_MAX


def test_an_api_server_that_takes_no_note_now_fails_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """One older than the worker, or one that does not answer: the plugin writes the note at the end."""
    run = Notes(None, monkeypatch)

    def away(_: object) -> NoReturn:
        raise RuntimeError("404")

    monkeypatch.setattr("txbatch.fit.present_note", away)
    result.tell(run.context, "txid 7: 9 records")
    assert (run.note, run.left) == (None, {result.XCOM_KEY: "txid 7: 9 records"})


@pytest.mark.parametrize(("state", "noted"), [("running", ["txbatch: 58 of 365"]), ("success", []), ("failed", [])])
def test_a_task_that_was_marked_at_its_work_does_not_note_behind_the_end_of_its_run(
    state: str, noted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note of the end says what to do; the API server takes notes of any task."""
    answer = DagRunResult.model_construct(state=state, note="txbatch: 57 of 365; to go on, clear the run")
    comms = SimpleNamespace(send=lambda asked: answer)
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", comms, raising=False)
    written = list[str]()
    context: Any = {
        "ti": SimpleNamespace(update_dagrun_note=written.append),
        "dag_run": SimpleNamespace(dag_id="sales", run_id="a"),
    }
    result.note_now(context, "58 of 365")
    assert written == noted


def test_a_run_that_waits_says_so_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Notes(None, monkeypatch)
    with pytest.raises(TaskDeferred):
        waiting.Deadlines("sales", run.context, {}).wait(
            waiting.TURN_TIMEOUT_PARAM, "txid 7 of a", "late", lambda left: AskAgainTrigger(1.0)
        )
    assert run.note is not None
    assert re.fullmatch(r"txbatch: waits for txid 7 of a; until [-0-9]+ [:0-9]+ UTC at the latest", run.note)
    with outages_waited_for("sales", run.context, {"txid": 7, "txbatch": __version__}, {}):
        pass
    assert run.note == "txbatch: goes on after a wait"
    assert run.left == {}, "the note at the end is of a task that has done something"


def test_an_older_airflow_notes_at_the_end_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = dict[str, str]()
    monkeypatch.setattr("txbatch.fit.present_note", lambda run: pytest.fail("asked"))
    result.tell(context_of(pushed), "txid 7: 9 records", "1 of 2")
    assert pushed == {result.XCOM_KEY: "txid 7: 9 records"}
