"""One module for each table of the ledger, or for what is locked in it.

`definitions`, `batches`, `offsets`, `record_numbers`, `event_time`; `batch_lock` ends a commit that stands still.
"""
