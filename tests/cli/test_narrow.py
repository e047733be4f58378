"""Tables on a terminal of 80 columns: nothing folds, what matters less is left out, errors stand below in whole."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import Engine, text

from txbatch import settings
from txbatch.tables import Column, records, table

Txbatch = Callable[..., Result]
JOB = """
topology = Topology("sales_of_all_shops")
spout = FixedBatchSpout("shop string, customer_of_the_shop string, n bigint", 1, *((f"shop {n}", "x", n) for n in range(3)))
stream = topology.new_stream("sales of all shops", spout)
stream.group_by("shop", "customer_of_the_shop").persistent_aggregate(
    OpaqueState("sales_by_shop_and_customer"), sales=Count(), total_of_all_sales=Sum("n"), largest_of_all_sales=Max("n"))
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
PROGRAM = """
import sys
from txbatch.cli.project import dag_files
from txbatch.cli.main import main
dag_files._import_errors = lambda dags: ({{}}, 10)  # Airflow would say so, three seconds later
for arguments in {commands!r}:
    print(f"$ {{arguments[0]}}", flush=True)
    main(arguments, standalone_mode=False)
"""
COMMANDS = [
    ["status"],
    ["batches", "sales_of_all_shops"],
    ["batches", "sales_of_all_shops", "--attempts"],
    ["plan", "{job}"],
    ["query", "sales_by_shop_and_customer", "shop 1,x", "none,none"],
    ["doctor"],
]


def on_a_terminal(*command: str, columns: int, **environment: str) -> str:
    """What a program prints to a terminal of so many columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    given = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | environment
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=subprocess.PIPE, env=given) as program:
        os.close(its)
        read = b""
        try:
            while piece := os.read(ours, 65536):
                read += piece
        except OSError:  # it has ended
            pass
        assert program.stderr
        errors = program.stderr.read().decode()
    os.close(ours)
    assert program.returncode == 0, errors
    return read.decode().replace("\r\n", "\n").replace("\x1b[1m", "").replace("\x1b[0m", "")


def test_every_table_fits_80_columns(
    txbatch: Txbatch, write_job: Callable[[str, str], str], engine: Engine, home: Path
) -> None:
    job = write_job("sales.py", JOB)
    assert (
        txbatch("run", job, "--run-id", "a run with a very long name of which the beginning tells most").exit_code == 0
    )
    assert txbatch("run", job).exit_code == 0
    why = "it failed for a reason that is told in far more than eighty characters, at whose end is what to do"
    with engine.begin() as connection:
        failed = "UPDATE txbatch.attempt SET status = 'failed', error = :why WHERE txid = 2"
        connection.execute(text(failed), {"why": why})
    commands = [[part.format(job=job) for part in command] for command in COMMANDS]
    url = engine.url.render_as_string(hide_password=False)
    said = on_a_terminal(
        *(sys.executable, "-c", PROGRAM.format(commands=commands)),
        columns=80,
        PYTHONPATH=str(settings.project_root() / "plugins"),
        TXBATCH_HOME=str(home),
        TXBATCH_DATABASE_URL=url,
    )
    print(said)
    blocks = {block.partition("\n")[0]: block.splitlines()[1:] for block in said.split("$ ")}
    assert said.count(why) == 1
    place = str(home).split()[0]  # where the home has a blank a line may end
    for line in said.splitlines():
        told = line.startswith("  Is any number wrong? ")  # a sentence, which is no part of a table
        assert len(line) <= 80 or why in line or place in line or told, line
    status = [line.split() for line in blocks["status"]]
    assert status[0][:2] == ["topology", "txid"]
    assert status[1][:2] == ["sales_of_all_shops", "2"]
    assert "shop                  shop 1" in "\n".join(blocks["query"])


def columns(short: bool) -> list[Column]:
    return [
        Column("name", "name", ["ä" * 30, "日本" * 12]),
        Column("at", "at", ["06:29" if short else "2026-11-22 06:29:03"] * 2),
        Column("n", "n", ["1", "1000"], numbers=True),
    ]


def test_a_table_is_shortened_then_cut_then_loses_columns_then_is_none() -> None:
    full = table(columns, None)
    assert full is not None
    assert full[1] == "ä" * 30 + " " * 18 + "  2026-11-22 06:29:03     1"
    assert table(columns, 62, cut=["name"]) == table(columns, 61)
    cut = table(columns, 40, cut=["name"])
    assert cut is not None
    assert cut[1] == "ä" * 26 + "…" + "  06:29     1"
    without = table(columns, 25, cut=["name"], drop=["at"])
    assert without is not None
    assert without[0].split() == ["name", "n"]
    assert table(columns, 10) is None
    assert records(columns(True))[:4] == ["name  " + "ä" * 30, "at    06:29", "n     1", ""]


@pytest.mark.parametrize("width", range(22, 80, 5))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    found = table(columns, width, cut=["name"], drop=["at"])
    assert found is not None
    assert max(map(len, found)) <= width
