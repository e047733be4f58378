"""What people ask a ledger and a state.

`ledger_reader`, `history_reader`, `multi_get`.
"""
