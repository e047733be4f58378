"""What the records of a batch contribute to a key, and how contributions merge.

Read `merge`, `merger` and `aggregator` first. Each of the others is a kind of aggregate: `counting`, `min_max_by`, `collect_set`,
`top_n`, `top_n_by`, `variance`, `approx_distinct`, `approx_quantile`; of the user's own code, `python_combiner` and
`reducer`.
"""
