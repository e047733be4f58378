"""The routes of the pages with data: GET alone, below /api, behind the login of Airflow, with the rights of each DAG."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from itertools import islice
from typing import Annotated, Any, ParamSpec, get_type_hints

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from pydantic import TypeAdapter

from txbatch.error_pages import read_pages
from txbatch.ui import airflow_auth, asked, reading, values
from txbatch.ui.airflow_auth import Readable, User
from txbatch.ui.payloads import (
    Batches,
    Detail,
    Explained,
    Interval,
    Intervals,
    One,
    Overview,
    Partitions,
    Problem,
    Run,
    Topologies,
    Turn,
)
from txbatch.ui.reader import Reader
from txbatch.ui.state_payloads import AsOf, Changes, Committed, Keys, Why

P = ParamSpec("P")
Text = str | None
Key = Annotated[list[str], Query()]
_PROBLEMS: dict[int | str, dict[str, Any]] = {code: {"model": Problem} for code in (401, 403, 404, 410, 422, 503)}
_TOPOLOGY = "/api/topologies/{dag_id}"
_STATE = _TOPOLOGY + "/states/{state:path}"


async def clean(request: Request) -> None:
    """Raise Refused if a part of the request cannot be in the database. A coroutine needs no thread."""
    given = [
        *map(str, request.path_params.values()),
        *(each for pair in request.query_params.multi_items() for each in pair),
    ]
    asked.fit(given)


def shows_values() -> None:
    """Raise 403 if pages show no values of states."""
    if not airflow_auth.show_values():
        raise HTTPException(403, "pages show no values here: [txbatch] pages_show_values is false")


def written(endpoint: Callable[P, Any]) -> Callable[P, Response]:
    """Return an endpoint whose thread writes the JSON, too. FastAPI checks an answer in a second thread, and then writes it."""
    adapter = TypeAdapter(get_type_hints(endpoint)["return"])

    @wraps(endpoint)
    def write(*args: P.args, **given: P.kwargs) -> Response:
        return Response(adapter.dump_json(endpoint(*args, **given)), media_type="application/json")

    return write


def router(reader: Reader, openapi: Callable[[], dict[str, Any]]) -> APIRouter:
    """Return the routes on a ledger."""
    made = APIRouter(responses=_PROBLEMS, dependencies=[Depends(clean)])
    _of_topologies(made, reader)
    _of_batches(made, reader)
    _of_states(made, reader)

    @made.get("/api/errors/{code}")
    def explained(code: str, user: User) -> Explained:
        """Return the page of an error's code: its meaning, whether any number is wrong, and the remedy."""
        page = read_pages().get(code.upper())
        if page is None:
            raise HTTPException(404, "no error has such a code")
        return Explained(code.upper(), page)

    @made.get("/api/openapi.json", include_in_schema=False)
    def description(user: User) -> dict[str, Any]:
        return openapi()

    return made


def _of_topologies(made: APIRouter, reader: Reader) -> None:
    @made.get("/api/topologies")
    def topologies(user: User) -> Topologies:
        """List the topologies that the user may read."""
        with reader.snapshot() as connection:
            names = reading.names(connection)
        # Airflow is asked name by name: no connection of the ledger waits for the answers.
        readable = [*islice(filter(partial(airflow_auth.may, user, "GET"), names), reading.TOPOLOGIES_MAX)]
        with reader.snapshot() as connection:
            return Topologies(reading.topologies(connection, readable))

    @made.get(_TOPOLOGY)
    def topology(name: Readable, user: User) -> One:
        """Return a topology: how far it is counted, what fails, who waits, and what the user may do."""
        told = _told_by_airflow(name, user)
        with reader.snapshot() as connection:
            return reading.one(connection, name, told)

    @made.get(f"{_TOPOLOGY}/turn")
    @written
    def turn(name: Readable, user: User, before: Text = None, limit: Text = None, failed: Text = None) -> Turn:
        """Return a topology and the newest batches of the topology, for an open page."""
        below, most, only_failed = _asked_of_batches(before, limit, failed)
        told = _told_by_airflow(name, user)
        with reader.snapshot() as connection:
            found = reading.batches(connection, name, below, most, None, failed=only_failed)
            return Turn(reading.one(connection, name, told), found)

    @made.get(f"{_TOPOLOGY}/overview")
    def overview(name: Readable) -> Overview:
        """Return the newest txid, and the txids not simply committed."""
        with reader.snapshot() as connection:
            return reading.overview(connection, name)

    @made.get(f"{_TOPOLOGY}/intervals")
    def intervals(
        name: Readable,
        start: Annotated[Text, Query(alias="from")] = None,
        end: Annotated[Text, Query(alias="to")] = None,
    ) -> Intervals:
        """Return the intervals beginning in a window of time, and the time not counted."""
        with reader.snapshot() as connection:
            found = reading.intervals(connection, name, start, end)
        users = airflow_auth.triggered_by(name, {each.run_id for each in found.intervals if each.run_id})
        return replace(found, intervals=[_with_user(each, users) for each in found.intervals])

    @made.get(f"{_TOPOLOGY}/partitions")
    def partitions(name: Readable, first: str, last: str, after: str = "", search: str = "") -> Partitions:
        """Return partitions by name, and the ranges read by the batches of some txids."""
        txids, begin = asked.txids(first, last, reading.TXIDS_MAX), asked.after(after)
        with reader.snapshot() as connection:
            return reading.partitions(connection, name, txids, begin, search)


def _with_user(interval: Interval, users: dict[str, str]) -> Interval:
    """Return an interval with the user behind its run, unless the run of a restate counts the interval."""
    own = interval.counts in (None, interval.txid)
    return replace(interval, triggered_by=users.get(interval.run_id or "")) if own else interval


def _told_by_airflow(name: str, user: User) -> dict[str, Any]:
    there = airflow_auth.dags(reading.acts_of(name))
    return {
        "paused": there.get(name),
        "may_trigger": name in there and airflow_auth.may(user, "POST", name),
        "show_values": airflow_auth.show_values(),
        "dags": reading.dags_of(name, there),
    }


def _asked_of_batches(before: Text, limit: Text, failed: Text) -> tuple[int | None, int, bool]:
    below = None if before is None else asked.txid(before, "before")
    return below, asked.limit(limit, reading.BATCHES_MAX), asked.flag(failed, "failed")


def _of_batches(made: APIRouter, reader: Reader) -> None:
    @made.get(f"{_TOPOLOGY}/batches")
    @written
    def batches(
        name: Readable, before: Text = None, limit: Text = None, status: Text = None, failed: Text = None
    ) -> Batches:
        """Return batches, newest first."""
        below, most, only_failed = _asked_of_batches(before, limit, failed)
        of_status = asked.status(status)
        with reader.snapshot() as connection:
            return reading.batches(connection, name, below, most, of_status, failed=only_failed)

    @made.get(f"{_TOPOLOGY}/committed")
    def committed(name: Readable, before: str) -> Committed:
        """Return the txid that was committed last before a time."""
        moment = asked.moment(before, "before")
        with reader.snapshot() as connection:
            return reading.committed(connection, name, moment)

    @made.get(f"{_TOPOLOGY}/batches/{{txid}}")
    def batch(name: Readable, txid: str) -> Detail:
        """Return a batch with its attempts, reads and restates, and the proof that the batch counts once."""
        number = asked.txid(txid)
        with reader.snapshot() as connection:
            found = reading.detail(connection, name, number)
        # The rights on this topology's DAG let nobody read the runs of another one.
        run_id = found.batch.run_id if found.batch.dag_id == name else None
        return replace(found, triggered_by=airflow_auth.triggered_by(name, [run_id]).get(run_id)) if run_id else found

    @made.get(f"{_TOPOLOGY}/batches/{{txid}}/changes", dependencies=[Depends(shows_values)])
    def changes_of_batch(name: Readable, txid: str, state: Text = None, limit: Text = None) -> Changes:
        """Return what a batch changed in a state, with values before and after."""
        number, most = asked.txid(txid), asked.limit(limit, values.CHANGES_OF_BATCH_MAX)
        with reader.snapshot() as connection:
            reading.batch_of(connection, name, number)
        pages = values.StatePages(reader.engine, name)
        return pages.changed(state or pages.default_state(), number - 1, number, most)

    @made.get(_TOPOLOGY + "/runs/{run_id:path}")
    def run(name: Readable, run_id: str) -> Run:
        """Return the batches found or planned by a run of the topology's DAG."""
        with reader.snapshot() as connection:
            return reading.of_run(connection, name, run_id)


def _of_states(made: APIRouter, reader: Reader) -> None:
    shown = APIRouter(dependencies=[Depends(shows_values)])

    @shown.get(f"{_STATE}/keys")
    def keys(name: Readable, state: str, key: Key = [], starts: str = "", limit: Text = None) -> Keys:  # noqa: B006
        """Return keys of a state to choose from."""
        most = asked.limit(limit, values.KEYS_MAX)
        return values.StatePages(reader.engine, name).keys(state, asked.key(key), starts, most)

    @shown.get(f"{_STATE}/why")
    def why(name: Readable, state: str, key: Key = []) -> Why:  # noqa: B006
        """Return where the value of a key comes from."""
        return values.StatePages(reader.engine, name).explained(state, asked.key(key))

    @shown.get(f"{_STATE}/as-of")
    def as_of(name: Readable, state: str, txid: str, key: Key = [], corrected: Text = None) -> AsOf:  # noqa: B006
        """Return the value of a key as of a txid."""
        number, restated = asked.txid(txid, first=0), asked.flag(corrected, "corrected")
        return values.StatePages(reader.engine, name).then(state, number, asked.key(key), corrected=restated)

    @shown.get(f"{_STATE}/changes")
    def changes(
        name: Readable,
        state: str,
        first: Annotated[str, Query(alias="from")],
        last: Annotated[str, Query(alias="to")],
        limit: Text = None,
    ) -> Changes:
        """Return the keys of a state that differ between two txids."""
        low, high = (asked.txid(each, what, 0) for each, what in ((first, "from"), (last, "to")))
        most = asked.limit(limit, values.CHANGES_MAX)
        return values.StatePages(reader.engine, name).changed(state, low, high, most)

    made.include_router(shown)
