"""PostgreSQL and Java for one machine, from packages; knows nothing of txbatch.

Read `postgres`, `postgres_process`, `locks`; then `java` and `class_data_training`.
"""
