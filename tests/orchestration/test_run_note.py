"""What becomes a run's note, and how long what a form takes may be."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Param

import txbatch_plugin
from txbatch.orchestration import catching_up, restating
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
