"""With `show_records=False` an error says where a record is, and shows no value of the record: of files, tables and topics."""

from __future__ import annotations

import pytest

from txbatch.core.errors import BadRecord, BadText, DamagedFile, TxbatchError
from txbatch.spark.failures import in_our_words

VALUE = "heron-umbrella-42"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            BadRecord(f"visits.csv, line 1,310, field 'page': '{VALUE}' is no int"),
            "visits.csv, line 1,310, field 'page'",
        ),
        (
            BadRecord(f"topic 'clicks' (source 'shop'), partition 3, offset 310: its page, '{VALUE}', is no int"),
            "topic 'clicks' (source 'shop'), partition 3, offset 310",
        ),
        (
            BadText("topic 'clicks' (source 'shop'), partition 3, offset 310: its value is no UTF-8"),
            "partition 3, offset 310",
        ),
        (BadRecord(f"shop.sale, id={VALUE}, amount: 'NaN' is no decimal(12,2); mend the row"), "shop.sale"),
        (
            BadRecord(
                f"shop.sale (source 'shop'): invalid input syntax for type integer: \"{VALUE}\" (22P02); mend the row"
            ),
            "shop.sale (source 'shop')",
        ),
    ],
)
def test_the_place_is_shown_and_no_value(error: TxbatchError, shown: str) -> None:
    told = in_our_words(error, show=False)
    assert (type(told), told.code) == (type(error), error.code)
    assert shown in told.text
    assert VALUE not in told.text
    assert "NaN" not in told.text
    assert VALUE in in_our_words(error).text or VALUE not in error.text


def test_what_is_no_record_is_shown() -> None:
    damaged = DamagedFile("visits.csv.gz cannot be unpacked: CRC check failed")
    assert in_our_words(damaged, show=False).text == damaged.text
