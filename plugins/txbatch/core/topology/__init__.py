"""The language of a job: streams, the steps on streams, and the states that streams end in.

Read `topology`, `owner`, `stream`, `grouped`, `persistent_aggregate` first. The parts of a stream: `nodes`, and the way of
records through nodes: `walks`. Steps: `python_steps`, `look_up`, `merge_and_join`, `numbered`, `watermarked`, `sessions`,
`late`, `quarantine`, `query_stream`. Checks of definitions and values: `checks`, `guarantee`, `storable`, `kept_windows`. A
comparison of the jobs that two processes loaded: `digests`.
"""
