"""What comes from outside is one printable line of bounded length wherever it is told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from txbatch.core.errors import BadRecord, TransientError
from txbatch.core.text import LENGTH_MAX, as_markdown, escape_json, one_line, repr_of, safe_lines

ODD = [
    *("\x1b]0;pwned\x07", "\x1b[2J", "a\rtxbatch: all is well", "a\nb", "\x9b31m", "\x7f", "\0", "\u202egnp.exe"),
    *("\u2066x\u2069", "\u200b", "\u2028", "\ud800", "\udcff", "\U000e0041", "\ufeff", "tab\t"),
]


@pytest.mark.parametrize("text", ODD, ids=ascii)
def test_what_is_shown_does_nothing_to_a_terminal(text: str) -> None:
    told = one_line(text)
    assert told.isprintable()
    assert told.encode()
    assert one_line(told) == told
    assert str(BadRecord(f"record {text}")).isprintable()
    as_json = escape_json(json.dumps([text, {text: text}], ensure_ascii=False, indent=1))
    assert json.loads(as_json) == [text, {text: text}]
    assert as_json.replace("\n", "").isprintable()


@pytest.mark.parametrize("text", ["", "how are you", "Grüße, 世界, 🎉", "back\\slash", "x" * LENGTH_MAX])
def test_what_is_printable_and_short_stays_as_it_is(text: str) -> None:
    assert one_line(text) == text


@pytest.mark.parametrize("text", ["x" * 20_000_000, "\x1b" * 5_000, "ü" * (LENGTH_MAX + 1)], ids=len)
def test_what_is_long_is_cut_and_says_how_long_it_was(text: str) -> None:
    told = one_line(text)
    assert len(told) == LENGTH_MAX
    assert told.endswith(f"... ({len(text):,} characters)")
    assert one_line(told) == told
    error = str(TransientError(text))
    assert len(error) == LENGTH_MAX
    assert error.endswith(f"... ({len(text):,} characters)")
    assert one_line(error) == error
    assert str(TransientError(error)) == error


def test_several_lines_are_cut_each_and_in_all() -> None:
    told = safe_lines("\n".join(["first", "\x1b[2J", *["x" * 9_000] * 200, "last"])).split("\n")
    assert (len(told), told[-1]) == (200, "last")
    assert max(map(len, told)) == LENGTH_MAX


def test_an_object_whose_text_raises() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

        __repr__ = __str__

    said = "Odd (its text raises ValueError)"
    assert (one_line(Odd()), repr_of(Odd())) == (said, said)


READER = MarkdownIt("commonmark").enable("strikethrough")
PIECES = [
    "`",
    "\\",
    "*",
    "_",
    "~",
    "<",
    ">",
    "<b>",
    "</b>",
    "<!--",
    "[",
    "]",
    "](",
    "!",
    "(",
    ")",
    "&lt;",
    "&",
    ";",
    "#",
    "|",
    "a",
    "1",
    " ",
    "é",
]


def read(line: str) -> str:
    """The text that a reader of Markdown shows behind a mark; nothing but text and code is in it."""
    (inline,) = (each for each in READER.parse(f"txbatch: {line}") if each.type == "inline")
    return "".join(map(shown, inline.children or ())).removeprefix("txbatch:").strip()


def shown(token: Token) -> str:
    assert token.type in ("text", "code_inline"), token
    return f"{token.markup}{token.content}{token.markup}" if token.type == "code_inline" else token.content


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join).map(str.strip))
def test_markdown_of_a_line_shows_the_line_and_marks_nothing_up(line: str) -> None:
    assert read(as_markdown(line)) == line


@pytest.mark.parametrize(
    "line",
    [
        "txids 1 to 2, 2024-01-01 00:00 to 2024-01-03 00:00 (UTC): 2 batches, 2 records",
        'nothing is changed; to count it again: txbatch restate sentences 3 --why "..."',
        "failed: TX301 (no retry helps): sales 8:1: 2013-01-05.csv, line 7; next: txbatch abort sales 8 | more",
        "waits for txid 7 of run airflow:flights:scheduled__2013-02-02T05:00:00+00:00; see `txbatch batches my_shop --attempts`",
    ],
)
def test_markdown_of_an_ordinary_line_is_the_line(line: str) -> None:
    assert as_markdown(line) == line


def test_markdown_is_cut_where_no_code_is_left_open() -> None:
    line = f"`![a](b){'x' * 40}` and more"
    assert as_markdown(line) == line
    assert as_markdown(line, 30) == f"\\`![a]\\(b){'x' * 20}"
