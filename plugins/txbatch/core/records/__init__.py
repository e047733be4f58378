"""What a record is made of, from the ground up.

Fields and types: `fields`, `python_types`, `declared`, `comparing`. What a job writes of them: `functions`, `where`,
`own_code`. Texts of values and in SQL: `sql`, `texts`, `ordered_texts`. Time: `time_buckets`.
"""
