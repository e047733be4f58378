"""What people ask a ledger and a state.

`reader`, `past_reader`, `multi_get`.
"""
