"""Corrections to committed batches and to the past of a topology.

Read `rebuild`; `retention` with `window_retention` and `growth`; `verify` with `audit` and `audit_contributions`.
"""
