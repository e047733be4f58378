"""What an error means for the numbers, and the command that comes next, whatever error it is and whoever reads it."""

from __future__ import annotations

import shlex

import pytest

from txbatch.core.errors import (
    ABORT,
    RESTORE,
    RUN_AGAIN,
    BadKey,
    BadRecord,
    BadText,
    DamagedFile,
    NotItsTurn,
    OutOfRange,
    RecordsGone,
    SchemaMismatch,
    SourceChanged,
    SparkFailed,
    TerminalError,
    TransientError,
    Unavailable,
    WrongColumns,
    concerning,
)
from txbatch.core.protocol.advice import of_open
from txbatch.core.text import LENGTH_MAX
from txbatch.error_pages import Advice, advise, read_pages

SALES = {"topology": "sales", "txid": 8, "job": "jobs/sales.py"}


def test_the_names_are_filled_in() -> None:
    advice = advise(NotItsTurn("sales: txid 8 waits for txid 7"), SALES)
    assert advice == Advice("TX402", "No: the batch waits and has changed nothing.", "txbatch status sales")
    assert advice.lines() == [
        "Is any number wrong? No: the batch waits and has changed nothing.",
        "Next: txbatch status sales",
        "More: txbatch explain TX402",
    ]


def test_a_name_is_quoted_for_the_shell_and_a_reason_is_given() -> None:
    advice = advise(RecordsGone("a.csv"), {"topology": "my sales; rm -rf", "txid": 8})
    assert advice.next == "txbatch abort 'my sales; rm -rf' 8 --why 'after TX205'"


def test_a_name_that_nobody_holds_leads_to_the_page() -> None:
    advice = advise(RecordsGone("a.csv"), {"topology": "sales", "txid": None})
    assert advice.next == advice.more == "txbatch explain TX205"
    assert len(advice.lines()) == 2


def test_names_of_an_inner_block_go_first() -> None:
    with pytest.raises(RecordsGone) as raised, concerning(topology="outer", txid=1), concerning(txid=2):
        raise RecordsGone("a.csv")
    assert advise(raised.value, {"topology": "held", "txid": 3}).next == "txbatch abort outer 2 --why 'after TX205'"


def test_an_error_made_without_names_has_none_of_another() -> None:
    with pytest.raises(BadRecord), concerning(txid=2):
        raise BadRecord("line 7")
    assert BadRecord("line 8").about == {}


@pytest.mark.parametrize(
    ("text", "following"),
    [
        ("mend it, or `txbatch rebuild sales --cancel`", None),
        ("run `make setup`", None),
        ("ask `txbatch why sales KEY`", "txbatch change jobs/sales.py"),
        ("a table is gone: restore it, or `txbatch drop` the topology", "txbatch change jobs/sales.py"),
        ("see `txbatch change jobs/sales.py`", "txbatch change jobs/sales.py"),
        ("a quote is not closed: `txbatch drop sal'es`", None),
    ],
)
def test_a_message_has_one_way_out(text: str, following: str | None) -> None:
    assert advise(SchemaMismatch(text), SALES).next == following


def test_the_way_out_of_the_text_is_the_same_one() -> None:
    filled = advise(RecordsGone('a.csv: restore it, or `txbatch abort sales 8 --why "..."`'), SALES)
    unnamed = advise(RecordsGone(f"a.csv: restore it, or {ABORT}"), SALES)
    assert filled == unnamed
    assert filled.next == "txbatch abort sales 8 --why 'after TX205'"


def test_a_file_that_changed_is_restored_and_tried_again_first_and_its_batch_is_aborted_last() -> None:
    """Where the text names the command with its batch, the text has both ways, the retry first."""
    assert advise(SourceChanged(f"a.csv had 5 bytes; {RESTORE}"), SALES).next == "txbatch run jobs/sales.py"
    named = of_open(f"a.csv had 5 bytes; {RESTORE}", "sales", 8)
    assert named.index("the retry reads it") < named.index("txbatch abort sales 8")
    assert advise(SourceChanged(named), SALES).next is None


@pytest.mark.parametrize("of", [BadRecord, DamagedFile, WrongColumns, BadText, OutOfRange, BadKey])
def test_what_is_mended_is_tried_again_first_and_its_batch_is_aborted_last(of: type[BadRecord]) -> None:
    """The plan holds for the mended file, unless its length differs: then the retry says so, and how to abort."""
    assert advise(of(f"a.csv, line 7: mend the file, then {RUN_AGAIN}"), SALES).next == "txbatch run jobs/sales.py"
    page = read_pages()[of.code]
    assert page.index("txbatch run JOB") < page.index("(TX204)") < page.index("txbatch abort TOPOLOGY TXID --why")


def test_airflow_runs_the_job_again_by_itself() -> None:
    error = TransientError("away")
    assert advise(error, SALES).next == "txbatch run jobs/sales.py"
    assert advise(error, SALES, in_airflow=True).next == "txbatch batches sales --attempts"


def test_to_run_the_job_again_is_to_call_again() -> None:
    called = ["run", "jobs/my sales.py", "--interval", "2026-01-01T00:00Z", "2026-01-02T00:00Z", "--run-id", "JOB"]
    assert advise(TransientError("away"), SALES, called=called).next == shlex.join(["txbatch", *called])
    assert advise(SparkFailed("no words"), SALES, called=called).next == shlex.join(["txbatch", "-v", *called])
    assert advise(NotItsTurn("txid 8 waits"), SALES, called=called).next == "txbatch status sales"


def test_an_error_within_an_error_has_one_code_and_one_advice() -> None:
    inner = Unavailable("the server does not answer; see `txbatch doctor`")
    error = BadRecord(f"sales: {inner}")
    assert str(error) == "TX301 (no retry helps): sales: the server does not answer; see `txbatch doctor`"
    assert advise(error, SALES).code == "TX301"


def test_a_text_of_100_000_characters_leaves_the_advice_whole() -> None:
    error = BadRecord("x" * 100_000 + " `txbatch rebuild sales --cancel`")
    assert len(str(error)) <= LENGTH_MAX
    assert "... (100,0" in str(error)
    assert advise(error, SALES).next == "txbatch run jobs/sales.py", "the text's command is cut off"


def test_a_code_of_a_job_has_no_page() -> None:
    class OwnError(TerminalError):
        code = "TX777"

    advice = advise(OwnError("mine"), SALES)
    assert advice == Advice("TX777", "", "txbatch explain TX777")
    assert advice.lines() == ["More: txbatch explain TX777"]
