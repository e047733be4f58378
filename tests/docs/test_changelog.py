"""CHANGELOG.md by versions, and the page that says how to upgrade."""

from __future__ import annotations

import re
from pathlib import Path

from txbatch import __version__

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
VERSION = re.compile(r"^## (?:Unreleased \((?P<next>[\d.]+)\)|(?P<released>[\d.]+) \(\d{4}-\d\d-\d\d\))$", re.MULTILINE)
# In this order; a version may lack some.
SECTIONS = ["What this version asks of you", "Added", "Changed", "Deprecated", "Removed", "Fixed"]


def versions() -> dict[str, str]:
    """The text of each version, the newest first."""
    found = list(VERSION.finditer(CHANGELOG))
    ends = [each.start() for each in found[1:]] + [len(CHANGELOG)]
    return {
        each["next"] or each["released"]: CHANGELOG[each.end() : end] for each, end in zip(found, ends, strict=True)
    }


def test_the_newest_version_of_the_changelog_is_that_of_the_package() -> None:
    assert next(iter(versions())) == __version__
    assert len(re.findall(r"^## ", CHANGELOG, re.MULTILINE)) == len(versions()), "a heading is none of a version"


def test_each_version_has_its_sections_once_and_in_order() -> None:
    for version, text in versions().items():
        told = re.findall(r"^### (.+)$", text, re.MULTILINE)
        assert told == [each for each in SECTIONS if each in told], version


def test_a_released_version_has_no_line_outside_of_its_sections() -> None:
    released = [text for version, text in versions().items() if f"## Unreleased ({version})" not in CHANGELOG]
    assert [text for text in released if re.search(r"^- ", text.partition("\n### ")[0], re.MULTILINE)] == []


def test_the_page_on_upgrades_has_each_version() -> None:
    page = (ROOT / "docs" / "run" / "upgrade.md").read_text(encoding="utf-8")
    assert re.findall(r"^### ([\d.]+)$", page, re.MULTILINE) == list(versions())
