"""Print for the command line: a table of important columns, or all as JSON; errors with the command that comes next."""

from __future__ import annotations

import json
import logging
import re
import shutil
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from datetime import date, datetime, timedelta
from functools import partial, wraps
from itertools import groupby
from operator import itemgetter
from typing import Any

import click

from txbatch.core.batch.holes import describe_hole
from txbatch.core.errors import JobEndedProgram, TxbatchError, Unexpected, error_of
from txbatch.core.records.time_buckets import MICROS
from txbatch.core.state.keep import FOR_EVER, Keep, describe_keep
from txbatch.core.text import escape_json, list_first, list_txids, one_line, safe_lines, text_of
from txbatch.core.windows.window import lasting
from txbatch.error_pages import Advice, advise
from txbatch.tables import lines_of, plain

# The width of lines of text if the output is no terminal.
PIPED_COLUMNS = 100
# The maximum number of uncounted intervals named by `status`, for each topology.
GAPS_SHOWN = 5
# The words of a call, in the meta of its context.
CALLED = "txbatch.called"
Rows = Iterable[Mapping[str, Any]]
# The maximum number of changed files named, for each topology.
CHANGED_SHOWN = 5
# The number of a run, behind the name of its call.
_NUMBER = re.compile(r"\+\d+$")


def prints_rows(
    *columns: str,
    nothing: str,
    show: Callable[[list[dict[str, Any]]], None] | None = None,
    drop: Sequence[str] = (),
    cut: Sequence[str] = (),
) -> Callable[[Callable[..., Rows]], Callable[..., None]]:
    """Add the option --json, to print every column. The table has these `columns` (none: all), without empty columns.

    If a terminal is too narrow, texts of the columns `cut` are cut, and the columns `drop` are left out, the first name
    first. Without `cut` and `drop`, each row becomes a block of lines. `show` prints the rows for people instead of the
    table, or, with `columns`, more lines below the table. An error prints as by `errors_told`, and ends with exit code 1. A
    row with a False `ok` also ends with exit code 1.
    """

    def decorate(function: Callable[..., Rows]) -> Callable[..., None]:
        @click.option("--json", "as_json", is_flag=True, help="Print JSON, with all columns.")
        @wraps(function)
        def run(*args: Any, as_json: bool, **kwargs: Any) -> None:
            with errors_told(as_json), redirect_stdout(sys.stderr) if as_json else nullcontext():  # a job may print
                rows = [dict(row) for row in function(*args, **kwargs)]
            if columns or as_json or show is None:
                _print(rows, columns, nothing, as_json, drop=drop, cut=cut)
            if show and not as_json:
                show(rows)
            if not all(row.get("ok", True) for row in rows):
                sys.exit(1)

        return run

    return decorate


@contextmanager
def errors_told(as_json: bool = False) -> Iterator[None]:
    """Context manager. On an error, print the error and its advice, and end the program with exit code 1; on Ctrl-C with 130."""
    try:
        yield
    except (click.ClickException, click.Abort):
        raise
    except KeyboardInterrupt:
        click.echo("txbatch: stopped; the next call goes on", err=True)
        sys.exit(128 + signal.SIGINT)
    except SystemExit as ended:
        why = f"the job, or a function of it, ended the program (SystemExit: {ended.code}); raise another error there"
        _print_error(JobEndedProgram(f"{why}; `txbatch -v` shows where").with_traceback(ended.__traceback__), as_json)
        sys.exit(1)
    except Exception as error:
        _print_error(error, as_json)
        sys.exit(1)


def _print_error(error: Exception, as_json: bool) -> None:
    coded = error if isinstance(error, TxbatchError) else _unexpected(error)
    advice = advise(coded, _held(), called=_called())
    if logging.getLogger("txbatch").isEnabledFor(logging.DEBUG):
        click.echo(safe_lines("".join(traceback.format_exception(error))), err=True)
    if as_json:
        what = {"error": type(error).__name__, "code": coded.code, "kind": coded.kind, "message": coded.text}
        _echo_json({**what, "numbers": advice.numbers, "next": advice.next})
    else:
        click.echo(f"txbatch: {coded}", err=True)
        _echo_below(advice, err=True)


def _echo_below(advice: Advice, *, err: bool = False) -> None:
    for line in advice.lines():
        click.echo(f"  {one_line(line)}", err=err)


def _called() -> Sequence[str]:
    """Return the words of the call if the command runs a job; none if not."""
    context = click.get_current_context(silent=True)
    found: Sequence[str] = context.meta.get(CALLED, ()) if context and "master" in context.params else ()
    return found


def _held() -> dict[str, object]:
    """Return the names that the command was given: topology, txid, job, state, key."""
    context = click.get_current_context(silent=True)
    given = {name: value for name, value in (context.params if context else {}).items() if value is not None}
    held: dict[str, object] = {name: given[name] for name in ("topology", "txid", "state", "key") if name in given}
    if "job" in given:
        held["job" if given["job"].endswith(".py") else "topology"] = given["job"]
    for one, several in (("txid", "txids"), ("key", "keys")):
        if len(given.get(several, ())) == 1:
            held[one] = given[several][0]
    if len(given.get("given", ())) == 2:  # of as-of: a txid and a key
        held["key"] = given["given"][1]
    return held


def _unexpected(error: Exception) -> Unexpected:
    return Unexpected(f"{type(error).__name__}: {text_of(error).rstrip('.')}; `txbatch -v` shows where")


def _print(rows: list[dict[str, Any]], columns: Sequence[str], nothing: str, as_json: bool, **narrow: Any) -> None:
    if as_json:
        _echo_json(rows, indent=1)
    elif rows:
        print_table(rows, columns or list(rows[0]), **narrow)
    else:
        click.echo(nothing, err=True)


def _echo_json(value: Any, indent: int | None = None) -> None:
    click.echo(escape_json(json.dumps(value, default=_json, ensure_ascii=False, indent=indent)))


def show_status(rows: list[dict[str, Any]]) -> None:
    """Print below the table all waiting runs, failed batches in flight, and uncounted intervals."""
    for row in rows:
        for each in row["missed"]:
            since, to = each["since_txid"], each["counts_to_txid"]
            counts = f"txids {since} to {to}" if since else "nothing"
            click.echo(
                f"{row['topology']}: state {each['state']} counts {counts}, and has missed txids {each['missed_txids']}"
            )
        for each in row["restating"]:
            by = f" for {each['requested_by']}" if each["requested_by"] else ""
            _say(f"{row['topology']}: txid {each['txid']} restates txid {each['position']}{by}: {each['reason']}")
        for each in row["ahead"]:
            records = "1 record" if each["ahead"] == 1 else f"{each['ahead']:,} records"
            _say(
                f"{row['topology']}: txid {each['txid']} read {records} of a time after it was planned, up to "
                f"{plain(each['ahead_to'])}: for the watermark as of then; `txbatch batches {row['topology']}` has all of these"
            )
        for each in row["half_committed"]:
            click.echo(f"{row['topology']}: state {each['state']} in database {each['database']} {_half(each)}")
        for error, failing in groupby(row["failing"], itemgetter("error")):
            _say(f"{row['topology']}: {_failed(list(failing))}: {error}")
        for together in _waiting_together(row["waiting"]):
            _say(f"{row['topology']}: {_waits(together)}")
        if row["keep"]:
            folded = f"; up to txid {row['horizon']} the past is folded" if row["horizon"] else ""
            _say(f"{row['topology']}: kept is {describe_keep(Keep.stored(row['keep']))}{folded}")
        for each in row["windows_wait"]:
            closed, gap = plain(each["closed_to"]), plain(each["gap_start"])
            _say(f"{row['topology']}: windows are closed up to {closed}, and wait for the gap from {gap}")
        for each in row["windows_left"]:
            _say(f"{row['topology']}: {_windows_left(each)}")
        for each in row["vanished"]:
            _say(f"{row['topology']}: {_vanished(each)}")
        for each in (*row["left_out"], *row["given_up"]):
            _say(f"{row['topology']}: {describe_hole(each)}")
        _show_gaps(row["topology"], row["uncounted"])
        show_changed(row["topology"], row["changed"])


def _vanished(of: Mapping[str, Any]) -> str:
    """Return which partitions of a stream are listed no more."""
    names = of["partitions"]
    which = f"partition {names[0]} is" if len(names) == 1 else f"partitions {list_first(names)} are"
    return (
        f"of stream {of['stream']}, {which} listed no more since {plain(of['since'])}: nothing new of that is counted"
    )


def _waiting_together(waiting: Sequence[Mapping[str, Any]]) -> Iterable[list[Mapping[str, Any]]]:
    """Group waiting runs by the awaited batch, in order: runs of one call, named after the call, are together."""
    found = dict[Any, list[Mapping[str, Any]]]()
    for each in waiting:
        who = each["run"] if each["txid"] is None else (_NUMBER.sub("", each["run"]), each["waits_for_txid"])
        found.setdefault(who, []).append(each)
    return found.values()


def _waits(together: Sequence[Mapping[str, Any]]) -> str:
    """Describe the waiting runs, the awaited batch, and the time since the wait began."""
    longest = min(together, key=itemgetter("since"))
    run = longest["run"] if len(together) == 1 else _NUMBER.sub("", longest["run"])
    who = run if longest["txid"] is None else f"{list_txids(each['txid'] for each in together)} of {run}"
    until = f"left alone until {plain(longest['lease_until'])}, or longer while it works"
    alive = until if longest["lease_live"] else "which shows no sign of life"
    return (
        f"{who} {'waits' if len(together) == 1 else 'wait'} for txid {longest['waits_for_txid']} of {longest['waits_for_run']} "
        f"({longest['waits_for_status']}), {alive}, since {plain(longest['since'])} ({plain(longest['waited'])})"
    )


def _failed(failing: Sequence[Mapping[str, Any]]) -> str:
    """Describe the attempts that failed for the same reason, like all attempts of one job, and the time."""
    first, last = failing[0], failing[-1]
    if first is last:
        return f"attempt {first['attempt']} failed at {plain(first['finished_at'])}"
    at = plain(max(each["finished_at"] for each in failing))
    return f"{len(failing):,} attempts, {first['attempt']} to {last['attempt']}, failed, the last at {at}"


def _windows_left(row: Mapping[str, Any]) -> str:
    stay = "for ever" if row["keep"] is None else f"for {lasting(row['keep'] // MICROS)}"
    of = f"windows of state {row['state']!r} stay {stay} once they have ended"
    if row["left_before"] is None:
        return f"{of}; none has left"
    which = "sessions that end" if row["sessions"] else "those that begin"
    records = "" if row["records"] is None else f", of {row['records']:,} records"
    return f"{of}; {which} before {plain(row['left_before'])} have left: {row['windows']:,}{records}"


def _show_gaps(topology: str, uncounted: Sequence[Mapping[str, Any]]) -> None:
    for each in uncounted[:GAPS_SHOWN]:
        dead = "" if each["lease_live"] else ", which shows no sign of life"
        tried = f", its attempt {each['attempt_status']}" if each["attempt_status"] else ""
        held = (
            f"txid {each['txid']} of {each['run']}{dead} is {each['status']}{tried}"
            if each["txid"]
            else "no batch has it"
        )
        click.echo(plain(f"{topology}: {plain(each['gap_start'])} to {plain(each['gap_end'])} is not counted: {held}"))
    if len(uncounted) > GAPS_SHOWN:
        click.echo(f"{topology}: {len(uncounted) - GAPS_SHOWN} more are not counted: report.gaps has them all")


def _half(each: Mapping[str, Any]) -> str:
    if "problem" in each:
        return f"is not well: {plain(each['problem'])}"
    return (
        f"shows txid {each['txid']}, which is not committed in the ledger yet: the next run of any batch repairs that"
    )


def show_changed(topology: str, changed: list[dict[str, Any]]) -> None:
    """Print some names of files that differ from the counted files: no run counts the differences by itself.

    Files read by newer batches in their current version are not named.
    """
    _show_late_rows(topology, [each for each in changed if "interval" in each])
    changed = [each for each in changed if "interval" not in each]
    named = [each for each in changed if each.get("seen_by") is None]
    if named:
        counted = any(each["txid"] is not None for each in named)  # by time, a restate may have counted the difference
        then = f"`txbatch verify {topology}` tells what is not counted" if counted else "the difference is not counted"
        click.echo(plain(f"{topology}: {_files(named, 'differs', 'differ')} from what was counted; {then}"))
    for each in named[:CHANGED_SHOWN]:
        click.echo(f"  {plain(each['file'])}: {each['change']}{_last_look(each)}")
    if len(named) > CHANGED_SHOWN:
        click.echo(f"  and {len(named) - CHANGED_SHOWN:,} more; --json names all")
    if seen := [each for each in changed if each.get("seen_by") is not None]:
        newer = f"{_files(seen, 'is', 'are')} as newer batches were planned with"
        then = f"older ones may have counted other records: `txbatch verify {topology}` tells"
        click.echo(plain(f"{topology}: {newer}; {then}"))


def _last_look(row: Mapping[str, Any]) -> str:
    """Return the newest batch planned with an earlier version of a file; empty if files are read once, or for a new file."""
    known = "seen_by" in row and row["txid"] is not None
    return f"; txid {row['txid']} was the last batch to look at the file" if known else ""


def _show_late_rows(topology: str, changed: Sequence[Mapping[str, Any]]) -> None:
    """Print some intervals whose rows in a table differ from those counted, and tables that were not looked at."""
    named = [each for each in changed if each["interval"] is not None]
    for each in changed:
        if each["interval"] is None:
            _say(f"{topology}: {each['file']} was {each['change']}")
    if named:
        which = "1 interval differ" if len(named) == 1 else f"{len(named):,} intervals differ"
        _say(f"{topology}: the rows of {which} from what was counted; `txbatch restate {topology} TXID` counts them")
    for each in named[:CHANGED_SHOWN]:
        start, end = each["interval"]
        click.echo(f"  {plain(each['file'])}, {start} to {end}, txid {each['txid']}: {each['change']}")
    if len(named) > CHANGED_SHOWN:
        click.echo(f"  and {len(named) - CHANGED_SHOWN:,} more; --json names all")


def _files(rows: Sequence[object], one: str, many: str) -> str:
    return f"1 file {one}" if len(rows) == 1 else f"{len(rows):,} files {many}"


def _say(line: str) -> None:
    click.echo(one_line(line))


def show_plan(rows: list[dict[str, Any]]) -> None:
    """Print the guarantee matrix, the batches in flight, and the next batch."""
    for row in rows:
        print_table(row["guarantees"], drop=("spout_kind", "database"), cut=("spout", "stream", "state"))
        for each in row["in_flight"]:
            dead = "" if each["lease_live"] else ", which shows no sign of life"
            _say(f"in flight: txid {each['txid']} of {each['run']}{dead}; it is {each['status']}")
        if row["one_by_one"]:
            _say("many batches of a call are emitted one by one:")
            _say(f"  {row['one_by_one']}")
        _say(f"next: {row['next']['does']}")
        if row["next"].get("ranges"):
            print_table(row["next"]["ranges"], cut=("stream", "partition", "start", "end", "note"))
        for warning in row["warnings"]:
            _say(warning)
        _show_keep(row["keep"], row["kept_until_now"])
        if row["growth"]:
            _say(f"contributions: {row['growth']['does']}")
        show_changed(row["topology"], row["changed"])


def _show_keep(keep: str, until_now: str | None) -> None:
    if until_now not in (None, keep):
        _say(f"kept, once gc is called: {keep}; it was {until_now}, and changes with the next run")
    elif keep != FOR_EVER:
        _say(f"kept, once gc is called: {keep}")


def show_checks(rows: list[dict[str, Any]]) -> None:
    """Print a line per check, or several if the terminal is narrow."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_COLUMNS
    for row in rows:
        head = f"{'ok' if row['ok'] else 'WRONG':<5}  {row['check']:<10}  "
        told = textwrap.wrap(plain(row["detail"]), width - len(head), break_long_words=False, break_on_hyphens=False)
        click.echo(head + f"\n{' ' * len(head)}".join(told))


def print_table(
    rows: list[dict[str, Any]],
    columns: Sequence[str] = (),
    *,
    drop: Sequence[str] = (),
    cut: Sequence[str] = (),
    width: int | None = None,
) -> None:
    """Print rows without empty columns, all columns unless `columns` are named, no wider than the terminal, if any."""
    head: Callable[[str], str] = str
    if sys.stdout.isatty():
        width = width or shutil.get_terminal_size().columns
        head = partial(click.style, bold=True)
    lines = lines_of(rows, columns, drop=drop, cut=cut, width=width, head=head)
    click.echo("\n".join(lines))


def show_reasons(rows: list[dict[str, Any]]) -> None:
    """Print below a table of batches or attempts the reasons of failures, aborts and skips.

    If the newest attempt failed, also print the advice for its error.
    """
    for row in rows:
        if why := row.get("error") or row.get("reason"):
            click.echo(f"{row.get('attempt') or row['txid']} {_what_came(row)}: {plain(why)}")
        if row is rows[0] and row.get("error"):
            held = {name: row[name] for name in ("topology", "txid")}
            _echo_below(advise(error_of(row["error"], Unexpected), held))


def _what_came(row: Mapping[str, Any]) -> str:
    if row.get("kind") == "skip":
        return "counts as read, its records are given up"
    if row.get("kind") != "restate":
        return str(row["status"])
    by = f" for {plain(row['requested_by'])}" if row["requested_by"] else ""
    return f"{row['status']}, restates {row['position']}{by}"


def _json(value: Any) -> Any:
    """Convert types missing in JSON: times to ISO 8601, spans of time to seconds, decimals to exact text."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else str(value)
