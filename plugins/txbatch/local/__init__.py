"""The embedded stack: everything to run txbatch for real on one machine, all under one folder (the *home*).

Read `up`, `down`, `airflow`, `airflow_config`, `airflow_api`; then `databases` and `metadata`. The demos: `demo`, `outage`,
`topic`, their input, `corpus`, `flights`, `shop`, `kafka_mock` and `example_sources`, and an independent count, `count_words`.
Shared modules: `processes`, `looking`, `signals`, `ports`.
"""
