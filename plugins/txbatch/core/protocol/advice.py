"""Advice in messages about a batch with a changed source. Spouts and checks write the advice for an open batch, unnamed.

For an open batch the advice then names the batch to abort. For a committed batch the advice is removed: a committed batch is
restated, never aborted (R17).

>>> of_open(f"a.csv is gone; restore it, or {ABORT}", "shop", 3).removesuffix(": the next plan reads the file as it is")
'a.csv is gone; restore it, or abort the batch (`txbatch abort shop 3 --why "..."`) and run again'
>>> from txbatch.core.errors import RESTORE
>>> of_committed(f"a.csv had 5 bytes when it was planned, now 4; {RESTORE}. Write files whole")
'a.csv had 5 bytes when it was planned, now 4'
>>> of_committed(f"line 7: a quote is not closed; mend the file, then {RUN_AGAIN}")
'line 7: a quote is not closed; mend the file'
"""

from __future__ import annotations

import re

from txbatch.core.errors import ABORT, RUN_AGAIN

(_UNNAMED,) = re.findall("`.*`", ABORT)
_RESTORE = re.compile(r"[;:] restore (?:it|them), (?:or|and [^`]+) abort the batch.*", re.DOTALL)
_MEND = re.compile(rf", (?:then {re.escape(RUN_AGAIN)}|or abort the batch)")


def of_open(message: str, topology: str, txid: int) -> str:
    """Return the error of an open batch, with the command that aborts the batch."""
    return message.replace(_UNNAMED, f'`txbatch abort {topology} {txid} --why "..."`')


def of_committed(message: str) -> str:
    """Return the error from reading a committed batch again, without the advice to abort."""
    return _MEND.sub("", _RESTORE.sub("", message))
