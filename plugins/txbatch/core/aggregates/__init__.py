"""Aggregates: the contribution of a batch's records to a key, and the merge of contributions.

Read `merge`, `merger` and `aggregator` first. Each of the others is a kind of aggregate: `counting`, `min_max_by`, `collect_set`,
`top_n`, `top_n_by`, `variance`, `approx_distinct`, `approx_quantile`; of the user's own code, `python_combiner` and
`reducer`.
"""
