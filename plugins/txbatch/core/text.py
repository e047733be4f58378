"""Text from outside, for a terminal, a log, the ledger and the UI: one printable line of bounded length."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# Of an error, a name, a reason. If you need all of a text, look at the source of the text.
LENGTH_MAX = 4_000
# Of a person's reason for a request; in the ledger, in reports and in the UI.
WHY_MAX = 1_000
# Of a record within an error.
RECORD_MAX = 300
_RANGES_SHOWN = 3
# Code in Markdown, and what is no plain text there outside of code. No text matches both ways: each match is quick.
_CODE = r"(?<!`)`[^`\s](?:[^`]*[^`\s])?`(?!`)"
_MARKUP = r"\\(?=[!-/:-@\[-`{-~])|[*~`]|(?<!\w)_+|_+(?!\w)|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<=\])\("
_MARKDOWN = re.compile(f"(?P<code>{_CODE})|{_MARKUP}")


def one_line(value: Any, at_most: int = LENGTH_MAX) -> str:
    r"""Return the text in one line. Characters that are not printable are escaped: control and format characters, line ends,
    lone surrogates. A text that is too long is cut, with the length at the end. A result given again stays the same.

    >>> one_line("a\x1b[2J\u202eb\nc")
    'a\\x1b[2J\\u202eb\\nc'
    >>> one_line("x" * 20_000_000, 50)
    'xxxxxxxxxxxxxxxxxxxxxxx... (20,000,000 characters)'
    """
    text = text_of(value)
    escaped = escape(text[: at_most + 1])
    if len(text) <= at_most and len(escaped) <= at_most:
        return escaped
    told = f"... ({len(text):,} characters)"
    return escaped[: max(at_most - len(told), 0)] + told


def describe_record(record: Mapping[str, Any]) -> str:
    """Return a record as a part of an error, cut to leave room for the rest of the error.

    >>> describe_record({"word": "a"})
    "{'word': 'a'}"
    """
    told = repr_of(record)
    return told if len(told) <= RECORD_MAX else told[:RECORD_MAX] + "..."


def how_many(count: int, one: str, many: str | None = None) -> str:
    """Return a number of things in words.

    >>> how_many(1, "key"), how_many(1_000, "key"), how_many(2, "batch", "batches")
    ('1 key', '1,000 keys', '2 batches')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def list_first(names: Sequence[str], shown: int = 5) -> str:
    """Return the first names, and how many more there are.

    >>> list_first(["a", "b", "c", "d"], 3), list_first(["a", "b"])
    ('a, b, c and 1 more', 'a, b')
    """
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return f"{', '.join(names[:shown])}{more}"


def list_txids(txids: Iterable[int]) -> str:
    """Return txids in order, as `list_numbers` does.

    >>> list_txids([122]), list_txids([122, 121]), list_txids([307, 305])
    ('txid 122', 'txids 121 to 122', 'txids 305, 307')
    >>> list_txids([1, 2, 3, 5, 7, 8, 10, 11, 13])
    'txids 1 to 3, 5, 7 to 8, 3 more'
    """
    return list_numbers("txid", txids)


def list_numbers(what: str, numbers: Iterable[int]) -> str:
    """Return numbers in order, in words: adjoining numbers by the first and the last, and only the first ranges of many.

    >>> list_numbers("migration", [32, 33])
    'migrations 32 to 33'
    """
    ranges = list[list[int]]()
    for number in sorted(numbers):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    told = [f"{each[0]} to {each[-1]}" if len(each) > 1 else f"{each[0]}" for each in ranges[:_RANGES_SHOWN]]
    more = sum(map(len, ranges[_RANGES_SHOWN:]))
    one = len(ranges) == 1 and len(ranges[0]) == 1
    return f"{what if one else what + 's'} {', '.join([*told, *([f'{more:,} more'] if more else [])])}"


def safe_lines(value: Any) -> str:
    """Return a text of several lines, each as by `one_line`; of too many lines, the last 200."""
    return "\n".join(map(one_line, text_of(value).splitlines()[-200:]))


def escape(text: str) -> str:
    """Return a text with characters that are not printable escaped, as in a Python literal."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def as_markdown(line: str, at_most: int = LENGTH_MAX) -> str:
    r"""Return Markdown that shows a line as the line is, cut to a length: no markup but code, no picture, no hidden part.

    Letters, numbers and the usual signs of a sentence stay as they are.

    >>> as_markdown("txid 7: 914 records, `txbatch why sales a_b`")
    'txid 7: 914 records, `txbatch why sales a_b`'
    >>> print(as_markdown("*.csv: ![a](https://b), '<i>' is no int"))
    \*.csv: ![a]\(https://b), '\<i>' is no int
    """
    while len(told := _MARKDOWN.sub(_as_text, line)) > at_most:
        line = line[: len(line) - (len(told) - at_most + 1) // 2]
    return told


def _as_text(found: re.Match[str]) -> str:
    return found[0] if found["code"] else "".join(f"\\{character}" for character in found[0])


def escape_json(text: str) -> str:
    r"""Return the same JSON without characters that could change a terminal, except line ends.

    >>> escape_json('"\x9b\u202e"')
    '"\\u009b\\u202e"'
    """
    return re.sub(r"[^\x20-\x7e\n]", lambda match: _json_escaped(match[0]), text)


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _json_escaped(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def text_of(value: Any) -> str:
    """Return the text of a job's value or exception, even if the job's own `__str__` raises."""
    return _said(value, str)


def repr_of(value: Any) -> str:
    """Return the `repr` of a job's value, even if the job's own `__repr__` raises."""
    return _said(value, repr)


def _said(value: Any, says: Callable[[Any], str]) -> str:
    try:
        return says(value)
    except Exception as error:
        return f"{type(value).__name__} (its text raises {type(error).__name__})"
