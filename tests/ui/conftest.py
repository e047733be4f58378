"""What tests of the pages share: a browser, and the server of the example payloads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from ui.browser import chromium
from ui.examples import Examples, application, served


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="package")
def example_server() -> Iterator[Examples]:
    """The server of the example payloads."""
    examples = Examples()
    with served(application(examples)) as base:
        examples.base = base
        yield examples


@pytest.fixture
def examples(example_server: Examples) -> Examples:
    """The server of the example payloads, as if it were fresh."""
    example_server.reset()
    return example_server
