"""The protocol: plain Python that decides and never does. Its rules (R1 ...) are those of docs/rules.md.

Reading order. What a job defines: `errors`, `fields`, `merge`, `aggregator`, `state`, `update`, `spout`, `batch_spout`, `static`,
`nodes`, `state_query`, `batch_steps`, `cuts`, `window`, `session_window`, `watermark`, `operations`, `watermarked`,
`keep_windows`, `numbered`, `python_steps`, `quarantine`, `grouped`, `stream`, `united`, `persistent_aggregate`, `sessions`,
`late`, `query_stream`, `topology`, `guarantee`, `definition`.
What then happens to it: `formats`, `plan`, `transaction`, `ledger`, `protocol`, `coordinator`, `loaded`, `manifest`,
`event_time`, `apart`.
"""
