"""A ledger and a warehouse for all histories of a module; each has a topology of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="module")
def ledger_url(new_database: Callable[[str], str]) -> str:
    return new_database("migrated")


@pytest.fixture(scope="module")
def warehouse(new_database: Callable[[str], str]) -> Callable[[str], str]:
    """Its URL, whatever it is called."""
    url = new_database("template1")
    return lambda name: url
