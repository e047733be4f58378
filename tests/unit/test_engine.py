"""The settings of an engine's connections, without a server (R10)."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import psycopg2
import pytest
from psycopg2.errors import RaiseException
from refusals import check_refusal
from sqlalchemy import create_engine

from txbatch.core.errors import DefinitionError, OutcomeUnknown, PastNotKept
from txbatch.postgres.database.driver_errors import translate
from txbatch.postgres.database.engine import _SESSION, _connecting
from txbatch.postgres.database.transaction import _translated, outcome_unknown
from txbatch.postgres.database.url import parse


class Server:
    """A dialect that connects to PostgreSQL 17; while it does, another thread may do what `meanwhile` does."""

    def __init__(self) -> None:
        self.meanwhile: Any = lambda: None

    def connect(self, *, options: str) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        cursor = MagicMock()
        cursor().__enter__().fetchone.return_value = (True,)
        return SimpleNamespace(server_version=170000, options=options, cursor=cursor, close=Mock(), rollback=Mock())


def test_two_threads_that_make_the_first_connections_get_all_settings() -> None:
    connecting, server, made = _connecting(_SESSION), Server(), []

    def connect() -> None:
        made.append(connecting(server, None, (), {}))

    server.meanwhile = connect
    connect()
    assert ["transaction_timeout=0" in each.options for each in made] == [True, True]


@pytest.mark.parametrize(("warehouse", "where"), [(None, ""), ("sales", " in database 'sales'")])
@pytest.mark.parametrize("told", ["server closed the connection unexpectedly", "invalid socket", "RDS Proxy has gone"])
def test_of_a_lost_commit_the_outcome_is_said_to_be_unknown(told: str, warehouse: str | None, where: str) -> None:
    """Whatever words the driver has for it: before COMMIT, some of them mean a wrong URL or a pooler."""
    lost = _translated(ConnectionError(told), True, warehouse)
    assert isinstance(lost, OutcomeUnknown)
    assert lost.text.startswith(f"outcome unknown: the answer to COMMIT{where} was lost; try again")
    assert not isinstance(_translated(ConnectionError(told), False, warehouse), OutcomeUnknown)


@pytest.mark.parametrize(
    ("severity", "code", "unknown"),
    [
        (None, None, True),
        ("FATAL", "08006", True),
        ("FATAL", "57P01", True),
        ("PANIC", "53100", True),
        ("PANIC", "58030", True),
        ("ERROR", "53100", False),
        ("ERROR", "40001", False),
        ("ERROR", "23514", False),
        ("FATAL", "25P03", False),
    ],
)
def test_only_an_answer_of_the_server_says_that_a_transaction_is_undone(
    severity: str | None, code: str | None, unknown: bool
) -> None:
    """A server that falls while it writes its log may find the COMMIT there when it starts again."""
    error = Translated("FEHLER", "COMMIT", str(code))
    error.pgcode, error.diag.severity_nonlocalized = code, severity
    assert outcome_unknown(code, severity) is unknown
    assert isinstance(_translated(error, True, None), OutcomeUnknown) is unknown


def test_an_error_that_a_function_of_the_database_raises_keeps_its_code() -> None:
    error = translate(RaiseException("TX701 (no retry helps): state 'n' has no past\nCONTEXT:  PL/pgSQL function"))
    assert isinstance(error, PastNotKept)
    assert str(error) == "TX701 (no retry helps): state 'n' has no past"


class Translated(psycopg2.Error):
    """An error of a server whose lc_messages is another language, as libpq hands it on."""

    pgcode: Any = None
    diag: Any = None

    def __init__(self, severity: str, message: str, code: str) -> None:
        super().__init__(f"{severity}:  {message}\nLINE 1: select\n")
        self.pgcode, self.diag = code, SimpleNamespace(message_primary=message)


@pytest.mark.parametrize(
    ("severity", "message", "sqlstate", "code", "told"),
    [
        ("FEHLER", "TX701 (no retry helps): state 'n' has no past", "22023", "TX701", "state 'n' has no past"),
        ("FEHLER", "Relation »state.words« existiert nicht", "42P01", "TX601", "a table or view of a state is gone"),
        ("ERREUR", "la relation « report.words » n'existe pas", "42P01", "TX601", "a table or view of a state is gone"),
        ("FEHLER", "Relation »txbatch.batch« existiert nicht", "42P01", "TX803", "`txbatch migrate`"),
        ("FEHLER", "keine Berechtigung für Tabelle batch", "42501", "TX804", "`txbatch doctor`"),
        ("FEHLER", "Verklemmung (Deadlock) entdeckt", "40P01", "TX801", "Verklemmung"),
        ("FEHLER", "storniere Anfrage wegen Zeitüberschreitung einer Sperre", "55P03", "TX802", "storniere"),
        ("SCHWERWIEGEND", "breche Verbindung ab aufgrund von Anweisung des Administrators", "57P01", "TX801", "breche"),
        ("FEHLER", "integer ist außerhalb des gültigen Bereichs", "22003", "TX305", "a value is out of range"),
    ],
)
def test_an_error_in_another_language_is_judged_by_its_sqlstate(
    severity: str, message: str, sqlstate: str, code: str, told: str
) -> None:
    error = translate(Translated(severity, message, sqlstate))
    assert error.code == code
    assert told in error.text
    assert severity not in error.text, "the word ERROR is translated as well, and says nothing"


def refused(url: str) -> str:
    with pytest.raises(DefinitionError) as raised:
        parse(url, "URL")
    return str(raised.value)


@pytest.mark.parametrize(
    ("url", "hosts", "ports"),
    [
        ("postgresql://u:p@one:5433,two:5434/db", "one,two", "5433,5434"),
        ("postgresql://u:a,b@one,two:5434/db?target_session_attrs=read-write", "one,two", "5434,5434"),
        ("postgresql+psycopg2://one,two/db", "one,two", ","),
        ("postgresql://u@[::1]:5433,two/db", "::1,two", "5433,"),
    ],
)
def test_several_hosts_are_written_as_libpq_has_them(url: str, hosts: str, ports: str) -> None:
    parsed = parse(url, "URL")
    asked = create_engine(parsed).dialect.create_connect_args(parsed)[1]
    assert (asked["host"], asked.get("port"), asked["dbname"]) == (hosts, ports, "db")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://u:p,q/db", "is not a URL"),
        ("postgresql://u@one:5432,two:99999/db", "there is no port 99999"),
        ("postgresql://u@one:5432,two:5432/db?host=three", "names hosts twice"),
        ("postgresql://u:p@q@one:5432,two/db", "is not a URL"),
        ("postgresql://h/db?sslmod=require", "has the option 'sslmod', which libpq does not know"),
        ("postgresql://h/db?connection_factory=x", "has the option 'connection_factory'"),
        ("postgresql://h/db?cursor_factory=x", "has the option 'cursor_factory'"),
        ("postgresql://h/db?dsn=x", "has the option 'dsn'"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str, why: str) -> None:
    assert why in refused(url)
    assert "p,q" not in refused(url)


@pytest.mark.parametrize("option", ["dbname", "database", "user", "password"])
@pytest.mark.parametrize("url", ["postgresql://u:p@h:5432/db?{}=geheim", "postgresql://?host=%2Ftmp&{}=geheim"])
def test_an_option_that_counts_in_place_of_a_part_of_the_url_is_refused_by_name(url: str, option: str) -> None:
    told = refused(url.format(option))
    assert f"URL has the option {option!r}" in told
    assert "geheim" not in told


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("postgresql://u@h/db?host=other", "host"),
        ("postgresql://u@h:5432/db?port=99", "port"),
        ("postgresql://u@:5432/db?host=h&port=99", "port"),
        ("postgresql://u@h/db?sslmode=require&host=other&host=more", "host"),
    ],
)
def test_a_host_or_port_that_the_url_has_already_is_refused_as_an_option(url: str, option: str) -> None:
    told = refused(url)
    assert f"URL has the option {option!r}" in told
    assert not re.search("other|99", told)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@/db?host=%2Ftmp%2Fs&port=5432",
        "postgresql://u:p@/db?host=one:5432&host=two:5433",
        "postgresql://u@h/db?port=5433",
        "postgresql://u@h/db?hostaddr=127.0.0.1",
        "postgresql://u@one,two/db?sslmode=require",
    ],
)
def test_hosts_and_ports_are_options_where_the_url_has_none(url: str) -> None:
    parse(url, "URL")


@pytest.mark.parametrize(
    ("told", "warehouse", "setting"),
    [
        ('connection to server at "h", port 5 failed: FATAL:  password authentication failed for user "u"', None, ""),
        ('connection to server at "h", port 5 failed: fe_sendauth: no password supplied', "shop", "_SHOP"),
    ],
)
def test_a_login_that_is_refused_is_told_with_the_setting_that_has_it(
    told: str, warehouse: str | None, setting: str
) -> None:
    """Tasks wait all the same, and go on by themselves: whoever corrects a connection of Airflow clears no run."""
    error = translate(ConnectionError(told), warehouse)
    check_refusal(error, "TX801", f"TXBATCH_DATABASE_URL{setting}", "`txbatch doctor`")
    assert "try again" not in error.text
