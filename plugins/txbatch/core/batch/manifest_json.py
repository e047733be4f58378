"""The manifest's JSON in the attempt's folder and in the ledger. A file in a folder may be damaged, or from another program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from txbatch.core.batch.came_late import came_from_json, came_to_json
from txbatch.core.batch.emitted import ReadPartition, StagedFile, StagedState
from txbatch.core.batch.transaction import TransactionAttempt
from txbatch.core.stored_json import check_format, read_count, read_each, read_text, read_whole

FORMAT = 1
# Fields left out if unknown.
_UNSAID = frozenset({"latest", "ahead", "late"})


def write_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a manifest. `manifest` has the fields of a Manifest."""
    streams: Mapping[str, Mapping[str, ReadPartition]] = manifest["streams"]
    states: Mapping[str, StagedState] = manifest["states"]
    came = manifest["came_late"]
    return {
        "format": FORMAT,
        "topology": manifest["topology"],
        "attempt": _said(manifest["attempt"]),
        "token": manifest["token"],
        "code": manifest["code"],
        "metadata_digest": manifest["metadata_digest"],
        "streams": {stream: {name: _said(part) for name, part in parts.items()} for stream, parts in streams.items()},
        "states": {name: {**_said(of), "files": [_said(file) for file in of.files]} for name, of in states.items()},
        "unreadable": manifest["unreadable"],
        **({} if came is None else {"came_late": came_to_json(came)}),
    }


def read_manifest(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Manifest. Raise the errors of `Manifest.from_json`."""
    check_format("the manifest", value, FORMAT)
    of = value["attempt"]
    return {
        "topology": read_text(value["topology"]),
        "attempt": TransactionAttempt(read_count(of["txid"]), read_count(of["attempt_id"])),
        "token": read_text(value["token"]),
        "code": read_text(value["code"]),
        "metadata_digest": read_text(value["metadata_digest"]),
        "streams": read_each(value["streams"], lambda parts: read_each(parts, _read_partition)),
        "states": read_each(value["states"], _staged_state),
        "unreadable": read_each(value["unreadable"], lambda holes: read_each(holes, read_text)),
        "came_late": None if value.get("came_late") is None else came_from_json(value["came_late"]),
    }


def _said(of: ReadPartition | StagedState | StagedFile | TransactionAttempt) -> dict[str, Any]:
    """Return the fields by name. `dataclasses.asdict` would copy each value: too slow for ten thousand files."""
    found = {each.name: getattr(of, each.name) for each in fields(of)}
    return {name: value for name, value in found.items() if value is not None or name not in _UNSAID}


def _read_partition(value: Mapping[str, Any]) -> ReadPartition:
    latest = None if value.get("latest") is None else read_whole(value["latest"])
    ahead = None if value.get("ahead") is None else read_count(value["ahead"])
    return ReadPartition(read_count(value["records"]), read_text(value["fingerprint"], r"-?\d{1,38}"), latest, ahead)


def _staged_state(value: Mapping[str, Any]) -> StagedState:
    totals = read_each(value["totals"], lambda total: None if total is None else read_text(total))
    files, rows = tuple(map(_staged_file, value["files"])), read_count(value["rows"])
    kept, late = (None if value.get(name) is None else read_count(value[name]) for name in ("kept", "late"))
    return StagedState(files, rows, totals, kept, late)


def _staged_file(value: Mapping[str, Any]) -> StagedFile:
    """Return a staged file. Raise ValueError if the file's name leads out of the attempt's folder."""
    name = read_text(value["name"], r"partials/\d+/[^/\\\0]+\.parquet")
    return StagedFile(name, read_count(value["bytes"]), read_count(value["rows"]), read_text(value["sha256"]))
