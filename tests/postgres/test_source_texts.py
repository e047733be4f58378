"""Texts of a table as COPY writes them, read as psycopg2 reads them, wherever the rows are cut into chunks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from databases import session
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from source_tables import shop_in
from sqlalchemy import make_url

from txbatch.core.errors import BadRecord
from txbatch.core.records.fields import parse_fields
from txbatch.spouts.tables import copy_text
from txbatch.spouts.tables.connection import Session, reading
from txbatch.spouts.tables.copy_text import Copy, copied

# Each text beside the same as bytes and in an array; and alone, where an empty text is an empty line.
BESIDE = "SELECT t, convert_to(t, 'UTF8'), ARRAY[t, NULL, '']::text"
AMONG = "FROM unnest(%s::text[]) WITH ORDINALITY AS u(t, n) ORDER BY n"
ODD = st.text(st.sampled_from("\\nNtrbfvx0.,\"'\n\t\r\b\f\v\a\ufeffé{} "), max_size=8)
TEXTS = st.lists(st.none() | ODD | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20))
few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def source(postgres_server: str) -> Iterator[Session]:
    with reading("shop", postgres_server, "shop.sale") as asked:
        yield asked


def rows(asked: Session, query: str, fields: str) -> list[tuple[Any, ...]]:
    """The rows of a query, by COPY."""
    copy = Copy("shop", "", "shop.sale", parse_fields(fields), ())
    return [tuple(row.values()) for chunk in copied(asked, query) for row in copy.parsed(chunk).to_pylist()]


@pytest.mark.rule("R24")
@pytest.mark.parametrize("chunk", [1, 50, copy_text.CHUNK_BYTES])
@given(texts=TEXTS)
@example(["", None, "\\N", "\\.", "a\\nb", "a\nb", "\\\n", "\t", "\r\n", "\\", "\\\\", "\x01\x1f", "\ufeff"])
@example(["", ""])
@example([None])
@few
def test_a_text_is_read_as_psycopg2_reads_it(
    source: Session, monkeypatch: pytest.MonkeyPatch, chunk: int, texts: Sequence[str | None]
) -> None:
    monkeypatch.setattr(copy_text, "CHUNK_BYTES", chunk)
    asked = source._cursor.mogrify(f"{BESIDE} {AMONG}", (texts,)).decode()
    expected = [(text, None if data is None else bytes(data), array) for text, data, array in source.rows(asked)]
    assert [text for text, *_ in expected] == texts
    assert rows(source, asked, "t string, b binary, a string") == expected
    alone = source._cursor.mogrify(f"SELECT t {AMONG}", (texts,)).decode()
    assert rows(source, alone, "t string") == [(text,) for text in texts]


@pytest.mark.rule("R24")
def test_a_bad_row_behind_texts_with_ends_of_lines_is_named(source: Session) -> None:
    query = "SELECT n, E'a\\n\\\\\\t' || n, CASE n WHEN 7 THEN 'x\ny' ELSE '1.50' END FROM generate_series(1, 9) n"
    copy = Copy("shop", "", "shop.sale", parse_fields("id int, shop string, amount decimal(12,2)"), ("id", "shop"))
    with pytest.raises(BadRecord) as refused:
        [copy.parsed(chunk) for chunk in copied(source, query)]
    assert "id=7, " in refused.value.text
    assert "amount: 'x\\ny' is no decimal(12,2)" in refused.value.text


def test_texts_of_a_database_in_another_encoding_are_read(databases: Callable[[str], str]) -> None:
    name = f"latin_{os.getpid()}"
    with session(databases("shop")) as ask:
        ask(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
        try:
            url = make_url(databases("shop")).set(database=name).render_as_string(hide_password=False)
            with shop_in(url) as shop:
                shop.ask("INSERT INTO shop.sale VALUES (1, U&'\\00e9\\0009\\005c', 1)")
                assert [row["shop"] for row in shop.read(shop.plan())] == ["é\t\\"]
        finally:
            ask(f"DROP DATABASE {name} WITH (FORCE)")
