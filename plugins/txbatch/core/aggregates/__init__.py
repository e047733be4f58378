"""Aggregates: the contribution of a batch's records to a key, and the merge of contributions.

Read `merge` and `aggregator` first. All other modules are kinds of aggregates: `counting`, `min_max_by`, `collect_set`,
`top_n`, `top_n_by`, `variance`, `approx_distinct`, `approx_quantile`; for a user's own code, `python_combiner` and `reducer`.
"""
