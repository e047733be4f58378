"""The embedded stack: what one machine needs to run txbatch for real, all of it under one folder (the *home*).

Read `up`, `down`, `airflow`, `airflow_config`, `airflow_api`; then `databases` and `metadata`. The demos: `demo`, `outage`,
what they read, `corpus` and `flights`, and an independent count of it, `count_words`. What all of them need: `processes`,
`looking`, `signals`, `ports`.
"""
