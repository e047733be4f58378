"""`make matrix`: txbatch with several versions of Airflow, PostgreSQL, Python and pyspark, each installed from the wheel.

`cells` has the combinations, as data. `environments` installs one, or says why it cannot be had. `smoke` is run by the Python
of a cell. `results` keeps what came of each, and writes the table of docs/run/versions.md.
"""
