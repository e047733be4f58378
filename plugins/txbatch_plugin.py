"""The Airflow plugin: writes the result of a topology's run into the run's note, and registers the pages of txbatch.

Every process of Airflow loads this file. The API server alone asks for the pages.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow.models.dagrun import DagRun

log = logging.getLogger(__name__)
# The key of `txbatch.orchestration.result`. That module is slow to import, and only tasks need it.
XCOM_KEY = "txbatch"
WAITED_KEY = "txbatch_waited"
MARK = "txbatch: "
AGAIN = f"{MARK}tried again; before: "
# Of a line; a note has a mark or two in front. Airflow keeps NOTE_MAX characters.
LENGTH_MAX, NOTE_MAX = 900, 1_000
FIRST_TASK = "InitializeTransactionOperator"
COMMIT_TASK, LAST_TASK = "commit", "success"
# How lines begin that no run of a topology ends with, unless somebody marks its tasks.
WAITS = ("waits for ", "waited ")
UNFINISHED = ("failed", "tried again", *WAITS)
# In the line of a run that catches up, on its way.
PROGRESS = "; to go on, "
PREFIX = "txbatch"


class RunNotes:
    """Writes the notes of runs, in the scheduler. Notes of other authors are left alone."""

    @hookimpl
    def on_dag_run_running(self, dag_run: DagRun) -> None:
        """Note that a cleared run is tried again: until the run ends, its note is about the time before."""
        _note_again(dag_run)

    @hookimpl
    def on_dag_run_success(self, dag_run: DagRun) -> None:
        """Note the newest line left by a task of the run, or a mark by hand, or the reason for a run without tasks."""
        line, states = _left(dag_run), _states(dag_run)
        if not states:
            _note(dag_run, line or _too_late(dag_run))
            return
        if not ends(line):
            # A task that was marked at work may leave a line after the end; a task that had no part in the run, a wait.
            told = None
            if states.get(LAST_TASK) == "success":
                told = _newest(dag_run, XCOM_KEY, LAST_TASK)
            elif line and line.startswith(WAITS):
                told = next(filter(ends, _lines(dag_run)), None)
            line = _waited(dag_run, told) or line
        committed = _committed(dag_run)
        if committed and line and PROGRESS in line and not _newest(dag_run, XCOM_KEY, LAST_TASK):
            line = None  # all is committed, and the last task was marked: no event was sent
        _note(dag_run, succeeded(line, committed))

    @hookimpl
    def on_dag_run_failed(self, dag_run: DagRun) -> None:
        """Note the newest line left by a task of the run: the findings, or the error; or the tasks that left none."""
        line, states = _left(dag_run), _states(dag_run)
        if line and states and line.startswith("failed") and not _is_of_now(dag_run, line, states):
            line = None
        _note(dag_run, failed(line, _committed(dag_run), states) if states else line)


def ends(line: str | None) -> bool:
    """True for a line that the green run of a topology ends with."""
    return bool(line) and not str(line).startswith(UNFINISHED)


def succeeded(line: str | None, committed: str | None) -> str:
    """Return the note of a topology's green run: the line of its tasks, unless somebody marked tasks as successful.

    `committed` names the txids of the task `commit`; None if the task did not end by itself.

    >>> succeeded("txid 7: 914 records", "txid 7")
    'txid 7: 914 records'
    >>> succeeded("tried again (try 1 of 4): TX201", None)
    'marked by hand: a mark commits nothing; clear the run to go on; before: tried again (try 1 of 4): TX201'
    """
    if line and ends(line):
        return line
    told = (
        f"marked by hand after the commit of {committed}: no asset event was sent; clear the task {LAST_TASK} to send one"
        if committed
        else "marked by hand: a mark commits nothing; clear the run to go on"
    )
    return f"{told}; before: {line}" if line else told


def failed(line: str | None, committed: str | None, states: Mapping[str, str | None]) -> str:
    """Return the note of a topology's red run: the line of the task that failed. If no task left a line, name the tasks.

    >>> failed(None, None, {"emit_batch": "failed", "commit": "upstream_failed"})
    'failed: emit_batch ended by a mark, a kill, a timeout or an unknown error; clear the run to go on; nothing is half counted'
    """
    if line and (line.startswith("failed") or PROGRESS in line):
        return line
    tasks = ", ".join(task for task, state in states.items() if state == "failed") or "the run"
    outcome = f"committed before: {committed}" if committed else "nothing is half counted"
    told = f"failed: {tasks} ended by a mark, a kill, a timeout or an unknown error; clear the run to go on; {outcome}"
    return f"{told}; before: {line}" if line else told


def _is_of_now(dag_run: DagRun, line: str, states: Mapping[str, str | None]) -> bool:
    """True for the line of a task that has failed. The line of another task is from before the run was cleared: Airflow keeps
    the line until the task begins again.
    """
    found = [_newest(dag_run, XCOM_KEY, task) for task, state in states.items() if state == "failed"]
    return any(told and line.startswith(told) for told in found)


def _note(dag_run: DagRun, line: str | None) -> None:
    if line and not (dag_run.note and not dag_run.note.startswith(MARK)):
        from txbatch.core.text import as_markdown

        dag_run.note = f"{MARK}{as_markdown(line, LENGTH_MAX - len(MARK))}"


def _note_again(dag_run: DagRun) -> None:
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        return
    with session.no_autoflush:
        note = dag_run.note
    if note and note.startswith(MARK) and not note.startswith(AGAIN):
        dag_run.note = f"{AGAIN}{note.removeprefix(MARK)}"[:NOTE_MAX]


def _left(dag_run: DagRun) -> str | None:
    """Return the newest line left by a task of the run, and how long the run waited for the ledger."""
    return _waited(dag_run, _newest(dag_run, XCOM_KEY))


def _waited(dag_run: DagRun, line: str | None) -> str | None:
    waited = _newest(dag_run, WAITED_KEY) if line else None
    return f"{line}; {waited}" if line and waited and waited not in line else line


def _newest(dag_run: DagRun, key: str, task: str | None = None) -> str | None:
    return line_of(_xcom(dag_run, key, task))


def _lines(dag_run: DagRun) -> list[str]:
    """Return the lines left by the tasks of the run, the newest first."""
    return [line for value in _xcoms(dag_run, XCOM_KEY, None) if (line := line_of(value))]


def _xcom(dag_run: DagRun, key: str, task: str | None = None) -> object:
    """Return the newest XCom of the run with this key, of a task or of any; None without one."""
    return next(iter(_xcoms(dag_run, key, task, 1)), None)


def _xcoms(dag_run: DagRun, key: str, task: str | None, many: int | None = None) -> list[object]:
    """Return XComs of the run with this key, of a task or of any, the newest first: all, or at most so many."""
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    try:
        from airflow.models.xcom import XComModel
    except ImportError:  # an older Airflow, in which no DAG of txbatch loads
        return []
    session = object_session(dag_run)
    if session is None:
        return []
    mine = [XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id, XComModel.key == key]
    if task is not None:
        mine.append(XComModel.task_id == task)
    with session.no_autoflush:
        newest = select(XComModel).where(*mine).order_by(XComModel.timestamp.desc()).limit(many)
        return [found.value for found in session.scalars(newest)]


def _committed(dag_run: DagRun) -> str | None:
    return txids_of(_xcom(dag_run, "return_value", COMMIT_TASK))


def txids_of(value: object) -> str | None:
    """Return the txids in the XCom of a commit, in words; None if the XCom has no txids.

    >>> txids_of('{"topology": "sales", "txid": 7}'), txids_of({"txids": [4, 5, 6]}), txids_of(None)
    ('txid 7', 'txids 4 to 6', None)
    """
    told = value
    if isinstance(value, str):
        with suppress(ValueError):
            told = json.loads(value)
    if not isinstance(told, dict):
        return None
    named = told.get("txids")
    found = [each for each in (named if isinstance(named, list) else [told.get("txid")]) if isinstance(each, int)]

    from txbatch.core.text import list_txids

    return list_txids(found) if found else None


def _states(dag_run: DagRun) -> dict[str, str | None]:
    """Return the state of each task of a topology's run; nothing for the run of another DAG, or for a run without tasks.

    The API server of Airflow 3.1 gives a run that somebody marks without its DAG: its tasks say whose it is.
    """
    from sqlalchemy.orm import object_session

    session = object_session(dag_run) if dag_run.dag is None or _of_topology(dag_run) else None
    if session is None:
        return {}
    with session.no_autoflush:
        found = dag_run.get_task_instances(session=session)
    if dag_run.dag is None and FIRST_TASK not in {each.operator for each in found}:
        return {}
    return {each.task_id: each.state for each in found}


def _of_topology(dag_run: DagRun) -> bool:
    dag = dag_run.dag
    return dag is not None and FIRST_TASK in {task.task_type for task in dag.tasks}


def line_of(value: object) -> str | None:
    """Return an XCom of txbatch in one line; None if the XCom is no text: anybody with permission to trigger runs may
    post an XCom.

    Airflow's own reader of XComs would make objects from the value, here in the scheduler.
    """
    if not isinstance(value, str):
        return None
    told: object = value
    with suppress(ValueError):
        told = json.loads(value)
    if not isinstance(told, str):
        return None

    from txbatch.core.text import one_line

    return one_line(told, LENGTH_MAX)


def _too_late(dag_run: DagRun) -> str | None:
    """Return why a topology's run is green without tasks: Airflow makes no tasks after the end date, and the form
    suggests now.
    """
    dag, date = dag_run.dag, dag_run.logical_date
    if not (dag and date and dag.end_date and date > dag.end_date and _of_topology(dag_run)):
        return None
    return (
        f"nothing was done: the logical date {date:%Y-%m-%d} is after the DAG's end date {dag.end_date:%Y-%m-%d}; empty the "
        "date to catch up or to count batches again, or trigger a run with an earlier one"
    )


class Pages(NamedTuple):
    """What the plugin registers of the pages: both are empty where there are none."""

    apps: list[Any]
    views: list[Any]


@cache
def pages() -> Pages:
    """Return the pages for this Airflow. Without the pages the API server starts all the same, and its log has the reason."""
    try:
        from airflow import __version__

        from txbatch import fit

        if not fit.takes_pages(__version__):
            log.warning(
                "the pages of txbatch need Airflow 3.1.8 or newer, and this is %s: no page is shown", __version__
            )
            return Pages([], [])
        from txbatch.ui.app import create_app

        shown = views(fit.places_of_pages(), narrow=fit.narrows_pages())
        return Pages([{"app": create_app(), "url_prefix": f"/{PREFIX}", "name": "txbatch"}], shown)
    except Exception:  # the API server would end
        log.exception("the pages of txbatch cannot be shown")
        return Pages([], [])


def views(places: Collection[str], *, narrow: bool) -> list[dict[str, Any]]:
    """Return the pages with their places in Airflow: in Browse, on a DAG, on a run and, where an Airflow has the place, on an
    asset. `narrow`: on DAGs and assets of txbatch alone.
    """
    page, icon = f"{PREFIX}/page", f"{PREFIX}/static/icon.svg"
    of_dags: dict[str, Any] = {"applies_to": {"dag.tags.name": ["txbatch"]}} if narrow else {}
    of_assets: dict[str, Any] = {"applies_to": {"asset.group": ["txbatch"]}} if narrow else {}
    found: list[dict[str, Any]] = [
        {"name": "Transactions", "destination": "nav", "category": "browse", "href": page, "url_route": PREFIX},
        {
            "name": "Transactions",
            "destination": "dag",
            "href": f"{page}?dag_id={{DAG_ID}}",
            "url_route": "txbatch-dag",
            **of_dags,
        },
        {
            "name": "Transaction",
            "destination": "dag_run",
            "href": f"{page}?dag_id={{DAG_ID}}&run_id={{RUN_ID}}",
            "url_route": "txbatch-run",
            **of_dags,
        },
        {
            "name": "Data",
            "destination": "asset",
            "href": f"{page}?asset={{ASSET_URI}}",
            "url_route": "txbatch-asset",
            **of_assets,
        },
    ]
    return [{**view, "icon": icon} for view in found if view["destination"] in places]


class TxbatchPlugin(AirflowPlugin):
    """The plugin class found by Airflow."""

    name = "txbatch"
    listeners = [RunNotes()]  # noqa: RUF012 - the base class says what it is

    @property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]
        """The application of the pages, asked for by the API server."""
        return pages().apps

    @property
    def external_views(self) -> list[Any]:  # type: ignore[override]
        """The places of the pages in Airflow, asked for by the API server."""
        return pages().views
