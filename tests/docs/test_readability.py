"""Pages that are written by hand read well: short sentences, the reader as "you", examples; by the targets of readability.py."""

from __future__ import annotations

import re

import pytest
from readability import LEAST, MOST, code_blocks, measure, missed, pages, sentences

PAGES = pages()
# They lead to the pages that have a task or a subject.
DOORS = ("README.md", "docs/index.md", "docs/build/index.md")
BEGINNING = re.compile(r"# .+\n\nAfter th(?:is page|ese \w+) .*\bYou need\b", re.DOTALL)
PAGE = """\
# A heading of five words

Run `txbatch run`, and look. You see [two words](x.md).

    code

`a/file.py`

```python
more = code
```

| a | table |

- Who knows it: nobody.
- Done
"""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_meets_its_targets(page: str) -> None:
    assert missed(page, measure(PAGES[page])) == {}, f"at most {MOST}, at least {LEAST}"


@pytest.mark.parametrize("page", [each for each in PAGES if each not in DOORS])
def test_a_page_begins_with_what_you_can_do_after_it_and_what_you_need_before_it(page: str) -> None:
    assert BEGINNING.match(PAGES[page].partition("\n## ")[0])


def test_what_is_counted() -> None:
    assert sentences(PAGE) == ["Run x , and look.", "You see two words.", "Who knows it: nobody.", "Done"]
    assert code_blocks(PAGE) == 2
    found = measure(PAGE)
    assert (found["words"], found["words a sentence"]) == (13, 3.2)
    assert {name: round(found[name] * 13 / 1000) for name in ("marks", "who", "saying", "you", "code blocks")} == {
        "marks": 2,
        "who": 1,
        "saying": 1,
        "you": 1,
        "code blocks": 2,
    }


def test_a_reference_needs_no_reader_and_no_code() -> None:
    figures = measure("A state is a table. " * 5)
    assert missed("docs/glossary.md", figures) == {}
    assert set(missed("docs/build/x.md", figures)) == set(LEAST)
