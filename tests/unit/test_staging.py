"""The staging area as others may leave it: files of another shape, folders that lead elsewhere, places that nobody shares."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import refusals
from support import LogSpout, word_count

from txbatch import settings
from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.manifest import Manifest, ReadPartition, StagedFile, StagedState
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import DefinitionError, Incomplete, NewerFormat, TransientError
from txbatch.storage import parquet
from txbatch.storage.staging import AttemptFolder, Staging, check_uri

MANIFEST = Manifest(
    topology="t",
    attempt=TransactionAttempt(1, 2),
    token="token",
    code="code",
    metadata_digest="digest",
    streams={"s": {"a": ReadPartition(3, "-42")}},
    states={
        "n": StagedState((StagedFile("partials/0/part-0.parquet", 10, 3, "sha"),), 3, {"count": "3", "low": None}, 3)
    },
    unreadable={"s": {"b": "away"}},
)
SHAPES = [
    "",
    "[]",
    "null",
    "7",
    '"text"',
    "{}",
    "[" * 20_000,
    "\x00\xff",
    '{"kind": ',
    '{"lease_seconds": 1, "beat": []}',
    '{"lease_seconds": "1", "beat": 1, "superseded": null}',
    '{"lease_seconds": 1, "beat": 1, "superseded": [7]}',
    "NaN",
]


def assignment(attempt_id: int = 2) -> Assignment:
    return Assignment("t", TransactionAttempt(1, attempt_id), f"{attempt_id}0000000-token", {"streams": {}}, "code")


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(f"file://{tmp_path}/staging")


@pytest.fixture
def folder(staging: Staging) -> AttemptFolder:
    made = staging.attempt(assignment())
    made.write_assignment(assignment())
    return made


def local(folder: AttemptFolder, name: str = "") -> Path:
    return Path(folder.path(name))


# ---- files of another shape


@pytest.mark.parametrize("content", SHAPES, ids=lambda content: content[:20])
def test_a_file_of_another_shape_cannot_be_read(folder: AttemptFolder, content: str) -> None:
    for name in ("manifest.json", "error.json", "fence.json", "assignment.json"):
        local(folder, name).write_bytes(content.encode("latin1"))
    with refusals.refused("TX408", "manifest.json"):
        folder.read_manifest()
    with refusals.refused("TX811", "fence.json"):
        folder.read_heartbeat()
    with refusals.refused("TX811", "assignment.json"):
        folder.read_assignment()
    assert folder.read_error() is None


@pytest.mark.parametrize("said", [{"kind": "x", "message": None}, {"kind": 7, "message": "x"}])
def test_an_error_that_is_no_text_says_nothing(folder: AttemptFolder, said: Any) -> None:
    local(folder, "error.json").write_text(json.dumps(said))
    assert folder.read_error() is None


def test_a_file_too_large_cannot_be_read(folder: AttemptFolder) -> None:
    for name in ("manifest.json", "error.json", "fence.json", "assignment.json"):
        local(folder, name).touch()
        os.truncate(local(folder, name), 1 << 40)
    size = r"cannot be read \(it has 1,099,511,627,776 bytes, at most"
    with pytest.raises(TransientError, match=rf"fence\.json {size} 1,048,576 are read\)"):
        folder.read_heartbeat()
    with pytest.raises(TransientError, match=rf"assignment\.json {size} 268,435,456 are read\)"):
        folder.read_assignment()
    with pytest.raises(Incomplete, match=rf"manifest\.json {size} 268,435,456 are read\)"):
        folder.read_manifest()
    assert folder.read_error() is None


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "link to a folder", "link to itself"])
def test_what_is_no_file_is_neither_read_nor_followed(folder: AttemptFolder, tmp_path: Path, kind: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name in ("manifest.json", "error.json", "fence.json"):
        if kind == "pipe":
            os.mkfifo(local(folder, name))
        elif kind == "folder":
            local(folder, name).mkdir()
        elif kind == "link":
            elsewhere.write_text(json.dumps(MANIFEST.to_json()))
            local(folder, name).symlink_to(elsewhere)
        elif kind == "link to a folder":
            elsewhere.mkdir(exist_ok=True)
            local(folder, name).symlink_to(elsewhere)
        else:
            local(folder, name).symlink_to(local(folder, name))
    with refusals.refused("TX408", "manifest.json"):
        folder.read_manifest()
    with refusals.refused("TX811", "fence.json"):
        folder.read_heartbeat()
    assert folder.read_error() is None
    if kind == "folder":
        with pytest.raises(IsADirectoryError):
            folder.write_manifest(MANIFEST)
    else:
        folder.write_manifest(MANIFEST)
        assert folder.read_manifest() == MANIFEST
    if kind == "link to a folder":
        assert list(elsewhere.iterdir()) == []


def test_a_heartbeat_that_is_a_pipe_or_leads_elsewhere_is_left_alone(staging: Staging, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    pipe, link = (staging.attempt(assignment(number)) for number in (3, 4))
    for each in (pipe, link):
        each.write_assignment(assignment())
    os.mkfifo(local(pipe, "fence.json"))
    local(link, "fence.json").symlink_to(tmp_path / "precious")
    staging.supersede(assignment())
    assert list((tmp_path / "precious").iterdir()) == []


def test_a_manifest_is_what_was_written(folder: AttemptFolder) -> None:
    folder.write_manifest(MANIFEST)
    assert folder.read_manifest() == MANIFEST


@pytest.mark.parametrize(
    ("at", "value"),
    [
        *[(("streams", "s", "a", "records"), value) for value in (-1, 1.5, "3", None, True, float("nan"))],
        *[(("streams", "s", "a", "fingerprint"), value) for value in ("x", "", "1e3", "9" * 39, 7, None)],
        *[(("states", "n", "rows"), value) for value in (None, -1, 2.0, "3")],
        *[(("states", "n", "kept"), value) for value in (-1, "3", False)],
        *[(("states", "n", "totals"), value) for value in (None, [], {"count": 3})],
        *[(("states", "n", "files", 0, "bytes"), value) for value in (None, -1)],
        *[
            (("states", "n", "files", 0, "name"), value)
            for value in (
                "../../../outside.parquet",
                "partials/0/../../../x.parquet",
                "/etc/x.parquet",
                "partials/0/a/b.parquet",
                "partials/0/a\\b.parquet",
                "partials/0/x.txt",
                "partials/0/x.parquet\n",
                None,
            )
        ],
        *[(("attempt", "txid"), value) for value in ("1", None, -1)],
        *[(("token",), value) for value in (None, 7, ["token"])],
        *[(("unreadable",), value) for value in (None, [], {"s": {"b": 7}}, {"s": ["b"]})],
    ],
    ids=str,
)
def test_a_manifest_of_what_nobody_could_have_counted(folder: AttemptFolder, at: tuple[Any, ...], value: Any) -> None:
    written = json.loads(json.dumps(MANIFEST.to_json()))
    within = written
    for name in at[:-1]:
        within = within[name]
    within[at[-1]] = value
    local(folder, "manifest.json").write_text(json.dumps(written))
    with refusals.refused("TX408", "manifest.json"):
        folder.read_manifest()


def test_a_manifest_of_an_older_version_is_read(folder: AttemptFolder) -> None:
    written = json.loads(json.dumps(MANIFEST.to_json()))
    del written["states"]["n"]["kept"]
    local(folder, "manifest.json").write_text(json.dumps(written))
    assert folder.read_manifest().states["n"].kept is None


# ---- what a newer txbatch wrote


@pytest.mark.parametrize(
    ("name", "what"),
    [("assignment", "assignment"), ("manifest", "manifest"), ("fence", "heartbeat"), ("error", "error")],
)
def test_what_a_newer_version_wrote_is_refused(folder: AttemptFolder, name: str, what: str) -> None:
    """Not taken for what it is not, nor for a file that is broken: `emit again` would not help."""
    written = {
        "assignment": assignment().to_json(),
        "manifest": MANIFEST.to_json(),
        "fence": Heartbeat(1).to_json(),
        "error": {"kind": "terminal", "message": "why"},
    }[name]
    read = getattr(folder, f"read_{what}")
    unmarked = {key: value for key, value in written.items() if key != "format"}
    for told in (unmarked, {**unmarked, "format": 1}):
        local(folder, f"{name}.json").write_text(json.dumps(told))
        assert read() is not None
    local(folder, f"{name}.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(
        NewerFormat, match=rf"/{name}\.json: the {what} has format 99, this txbatch reads 1: update this"
    ):
        read()


def test_a_heartbeat_of_a_newer_version_is_superseded_all_the_same(staging: Staging, folder: AttemptFolder) -> None:
    local(folder, "fence.json").write_text('{"format": 99}')
    staging.supersede(assignment(3))
    assert folder.read_heartbeat() == Heartbeat(0, superseded="1:3")


# ---- heartbeats are hints


@pytest.mark.parametrize("content", SHAPES, ids=lambda content: content[:20])
def test_a_heartbeat_that_cannot_be_read_is_written_anew(staging: Staging, folder: AttemptFolder, content: str) -> None:
    local(folder, "fence.json").write_bytes(content.encode("latin1"))
    staging.supersede(assignment(3))
    assert folder.read_heartbeat() == Heartbeat(0, superseded="1:3")


def test_whatever_else_lies_beside_an_attempt_is_left_alone(
    staging: Staging, folder: AttemptFolder, tmp_path: Path
) -> None:
    folder.write_heartbeat(Heartbeat(1))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "fence.json").write_text("mine")
    (local(folder).parent / "link").symlink_to(tmp_path / "elsewhere")
    (local(folder).parent / "file").write_text("")
    staging.supersede(assignment(3))
    assert folder.read_heartbeat().superseded == "1:3"
    assert (tmp_path / "elsewhere" / "fence.json").read_text() == "mine"


# ---- links


@pytest.mark.parametrize("link", ["t", "t/1"])
def test_nothing_is_written_or_removed_through_a_link(staging: Staging, tmp_path: Path, link: str) -> None:
    precious = tmp_path / "precious" / "1" / "2-20000000"
    precious.mkdir(parents=True)
    at = tmp_path / "staging" / link
    at.parent.mkdir(parents=True)
    at.symlink_to(tmp_path / "precious")
    for call in (
        lambda: staging.transaction("t", 1).remove(),
        lambda: staging.attempt(assignment()).write_assignment(assignment()),
        lambda: staging.supersede(assignment()),
    ):
        with refusals.refused("TX815", "symbolic link"):
            call()
    assert list(precious.iterdir()) == []


def test_a_root_that_lies_behind_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    staging = Staging(f"file://{tmp_path}/link/staging")
    staging.attempt(assignment()).write_assignment(assignment())
    staging.transaction("t", 1).remove()
    assert not (tmp_path / "real" / "staging" / "t" / "1").exists()


def test_what_is_gone_is_gone(folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.remove()
    folder.remove()
    monkeypatch.setattr(type(folder.filesystem), "exists", lambda *_: True)  # another was quicker
    folder.remove()


# ---- partials


def write_partials(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"word": ["dog"], "count": [1]}), path)


def test_what_a_task_left_that_did_not_end_is_no_partials(folder: AttemptFolder) -> None:
    for name in ("a.parquet", "_temporary/0/b.parquet", ".hidden/c.parquet", "_d.parquet", ".e.parquet"):
        write_partials(local(folder, f"partials/0/{name}"))
    (aggregate,) = word_count(LogSpout({"a": 1})).aggregates
    described = parquet.describe(folder, 0, aggregate)
    assert ([file.name for file in described.files], described.rows, described.totals) == (
        ["partials/0/a.parquet"],
        1,
        {"count": "1"},
    )


@pytest.mark.parametrize("kind", ["pipe", "folder", "longer"])
def test_partials_that_are_no_file_or_longer_are_not_read(folder: AttemptFolder, kind: str) -> None:
    (aggregate,) = word_count(LogSpout({"a": 1})).aggregates
    write_partials(local(folder, "partials/0/a.parquet"))
    described = parquet.describe(folder, 0, aggregate)
    path = local(folder, "partials/0/a.parquet")
    if kind == "longer":
        os.truncate(path, 1 << 40)
    else:
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.mkdir()
        assert parquet.describe(folder, 0, aggregate).files == ()
    with refusals.refused("TX408", "partials/0/a.parquet", "manifest"):
        list(parquet.read(folder, described))


@pytest.mark.parametrize("link", ["partials/0/a.parquet", "partials/0", "partials"])
def test_partials_behind_a_link_are_not_the_attempts(folder: AttemptFolder, tmp_path: Path, link: str) -> None:
    (aggregate,) = word_count(LogSpout({"a": 1})).aggregates
    write_partials(local(folder, "partials/0/a.parquet"))
    described = parquet.describe(folder, 0, aggregate)
    assert sum(batch.num_rows for batch in parquet.read(folder, described)) == 1
    local(folder, link).rename(tmp_path / "moved")
    local(folder, link).symlink_to(tmp_path / "moved")
    with refusals.refused("TX408", "partials/0/a.parquet", "manifest"):
        list(parquet.read(folder, described))


# ---- places


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "memory://x",
            "simplecache::file:///x",
            "reference://",
            "simplecache://x",
            "http://host/x",
            "zip://a::/tmp/b.zip",
        ),
        *(
            "local:///x",
            "x",
            "./x",
            "../x",
            "~",
            "~/x",
            "$HOME/x",
            "file:x",
            "file://x/y",
            "file://~/x",
            "//x/y",
            "s3a:/x",
        ),
        *("file://localhost/x", "C:\\x", "://x", "/x\ny", "/x\0"),
    ],
)
def test_a_place_that_others_do_not_see_is_refused(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with refusals.refused("TX806", "Spark", "///"):
        Staging(uri).check()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["nosuch://host/x", "FILE:///x", "viewfs:///x"])
def test_a_place_that_is_not_known_here_is_refused(uri: str) -> None:
    with pytest.raises(
        DefinitionError, match=r"cannot be reached from here \(Protocol not known: .*install its filesystem"
    ):
        check_uri(uri)


@pytest.mark.parametrize("name", ["file", "file/x", "file/x/y"])
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_place_that_is_a_file_is_refused(tmp_path: Path, scheme: str, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DefinitionError, match=rf"cannot be a folder: {tmp_path}/file is a file; name another place"):
        check_uri(f"{scheme}{tmp_path}/{name}")


def test_a_place_that_cannot_be_written_to_or_cleared_is_told_in_our_words(
    staging: Staging, folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = staging.attempt(assignment(3))
    other.write_assignment(assignment(3))
    folder.write_heartbeat(Heartbeat(120))

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    for name in ("_write_json", "_read"):
        monkeypatch.setattr(AttemptFolder, name, forbidden)
    monkeypatch.setattr(type(folder.filesystem), "rm", forbidden)
    with refusals.refused("TX811", "`txbatch doctor`"):
        folder.write_assignment(assignment())
    with refusals.refused("TX811", "manifest.json"):
        folder.read_manifest()
    with refusals.refused("TX811", "`txbatch doctor`"):
        staging.remove("t", 1)
    staging.supersede(assignment(3))
    assert "the driver could not be stopped, although attempt 1:3 has replaced the attempt: not yours" in caplog.text


def test_doctor_says_who_else_may_write_there(tmp_path: Path) -> None:
    staging = Staging(f"file://{tmp_path}/open/staging")
    (tmp_path / "open").mkdir()
    assert staging.check() == []
    (tmp_path / "open").chmod(0o777)
    assert staging.check() == [f"{tmp_path}/open is writable by all"]
    (tmp_path / "open").chmod(0o777 | stat.S_ISVTX)
    assert staging.check() == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
def test_doctor_says_whose_the_place_is(tmp_path: Path) -> None:
    (tmp_path / "staging").mkdir()
    os.chown(tmp_path / "staging", 12345, -1)
    assert Staging(f"file://{tmp_path}/staging").check() == [f"{tmp_path}/staging belongs to another user (12345)"]


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://u:SECRET@h/x",
        "s3://key:SEC/RET@bucket/x",
        "s3://key:@bucket",
        "ftp://u:SECRET@h:",
        "simplecache::s3://u:SECRET@h/x",
    ],
)
def test_a_place_with_a_password_is_refused_without_showing_it(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXBATCH_STAGING", uri)
    monkeypatch.setenv("TXBATCH_DATABASE_URL", "postgresql:///x")
    with refusals.refused("TX806", "TXBATCH_STAGING", "password") as refused:
        settings.resolve()
    assert "SEC" not in str(refused.value)


@pytest.mark.parametrize(
    "uri",
    [
        "abfss://container@account.dfs.core.windows.net/x",
        "hdfs://me@host:8020/a@b/x",
        "hdfs://host:8020/a@b",
        "file:///a:b@c",
    ],
)
def test_a_place_with_a_user_has_no_password(uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"STAGING": uri, "DATABASE_URL": "postgresql:///x", "HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(f"TXBATCH_{name}", value)
    assert settings.resolve().staging == uri
