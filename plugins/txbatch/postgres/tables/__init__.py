"""The tables of the ledger and their locks: a module for each.

`definitions`, `batches`, `offsets`, `record_numbers`, `event_time`, `came_late`; `batch_lock` ends a commit that stands still.
"""
