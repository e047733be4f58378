"""The protocol: plain Python that decides and never does.

Reading order: `fields`, `aggregator`, `state`, `spout`, `topology`, `transaction`, `manifest`, `ledger`, `protocol`,
`coordinator`.
"""
