"""Questions of people to a ledger and a state.

`ledger_reader`, `history_reader`, `multi_get`.
"""
