"""What becomes a run's note, and how long what a form takes may be."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Param

import txbatch_plugin
from txbatch.core.errors import BadRecord, PartitionUnreadable, RecordsGone, TxbatchError
from txbatch.error_pages import advise
from txbatch.orchestration import catching_up, operators, restating, result
from txbatch.orchestration.airflow import failing_as_airflow
from txbatch.orchestration.dag import _choosing


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


def noted(error: TxbatchError, held: dict[str, object] = HELD) -> str | None:
    return txbatch_plugin.line_of(result.failed(error, advise(error, held, in_airflow=True)))


def test_the_note_of_a_failed_run_is_one_line_with_the_command_that_comes_next() -> None:
    told = noted(RecordsGone("sales 8:1: line 7"))
    assert told == "failed: TX205 (no retry helps): sales 8:1: line 7; next: txbatch abort sales 8 --why 'after TX205'"


@pytest.mark.parametrize(
    ("error", "held"),
    [
        (RecordsGone("x" * 820), HELD),
        (BadRecord("line 7"), {}),
        (BadRecord("line 7: see `txbatch why sales a`"), HELD),
    ],
    ids=["no room", "no txid", "a command of its own"],
)
def test_a_note_without_a_command(error: TxbatchError, held: dict[str, object]) -> None:
    assert noted(error, held) == f"failed: {error}"


def test_a_note_has_room_for_a_command_that_fits() -> None:
    told = noted(RecordsGone("x" * 770))
    assert told is not None
    assert told.endswith("; next: txbatch abort sales 8 --why 'after TX205'")
    assert len(txbatch_plugin.MARK + told) <= txbatch_plugin.LENGTH_MAX


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
    steps: Any = SimpleNamespace(job=SimpleNamespace(topology=SimpleNamespace(name="sales")))
    batch: Any = SimpleNamespace(topology="sales", txid=7, kind="ordinary")
    context: Any = {"dag": SimpleNamespace(timetable=None)}
    task: Any = SimpleNamespace()
    line = operators.TransactionOperator.counted(task, steps, batch, context)
    assert line == f"txid 7: 9 records, 2 keys, 1 attempt; of stream in, {told}"
