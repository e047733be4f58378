"""What a record is made of, from the ground up.

Fields and types: `fields`, `python_types`, `declared`, `comparing`. Conditions and functions of a job: `functions`, `where`,
`own_code`. Values and names in SQL, values in text: `sql`, `texts`, `ordered_texts`. Time: `time_buckets`.
"""
