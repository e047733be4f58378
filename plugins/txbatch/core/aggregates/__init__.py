"""What the records of a batch contribute to a key, and how contributions merge.

Read `merge` and `aggregator` first. Each of the others is a kind of aggregate: `tallies`, `by_field`, `several`,
`top_rows`, `spread`, `distinct`, `quantile`; of the user's own code, `own_combiner` and `reducer`.
"""
