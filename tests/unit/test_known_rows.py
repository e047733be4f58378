"""A range over the swap of a rebuild, which brought pruned rows back, and restates of their positions since."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from txbatch.core.errors import RecordsGone
from txbatch.core.upstream.ranges import Replaced, UpstreamState
from txbatch.core.upstream.upstream import check_known_rows


@pytest.mark.parametrize(("last_counted", "refused"), [(6, True), (9, True), (None, False)])
def test_a_position_that_is_counted_again_meanwhile_hides_no_restate_within_the_range(
    last_counted: int | None, refused: bool
) -> None:
    """Known as of txid 7; position 1 was counted again by txid 6, and is once more, by txid 9, before that is asked for."""
    known = UpstreamState(
        "kept", "up", ("2026-01-01", 1), 7, replaced=(Replaced(1, 4, 0, pruned=((0, 2),)),), pruned=()
    )
    counted = [(3, 5), *([] if last_counted is None else [(1, last_counted)])]
    upstream: Any = SimpleNamespace(positions=lambda state, after: counted)
    range_ = {"start": 3, "end": 7, "of": ["2026-01-01", 1]}
    if not refused:
        check_known_rows(known, range_, upstream)
        return
    with pytest.raises(RecordsGone, match=f"position 1 of state 'kept' was counted again by txid {last_counted}"):
        check_known_rows(known, range_, upstream)
