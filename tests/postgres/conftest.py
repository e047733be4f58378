"""Batches on a real PostgreSQL."""

from __future__ import annotations

import pytest
from postgres_bench import Bench
from sqlalchemy import Engine


@pytest.fixture
def bench(engine: Engine) -> Bench:
    return Bench(engine)
