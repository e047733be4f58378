"""The language of a job: streams, the steps on them, and the states that they end in.

Read `topology`, `owner`, `stream`, `grouped`, `persistent_aggregate` first. What a stream is made of: `nodes`, and what
is asked of nodes: `walks`. Steps: `python_steps`, `look_up`, `merge_and_join`, `numbered`, `watermarked`, `sessions`,
`late`, `quarantine`, `query_stream`. What is refused: `checks`, `guarantee`, `storable`, `kept_windows`. Whether two
processes loaded the same job: `digests`.
"""
