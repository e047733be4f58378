"""One module for each table of the ledger, or for what is locked in it.

`definitions`, `rows`, `ranges`, `numbered`, `event_time`; `stalled_commit` ends a commit that stands still.
"""
