"""The pages of txbatch in Airflow: read only, as the reader of the schema `report`. An act is a DAG run, which the browser triggers.

`payloads`. Beside it `static`: the page, its style and its scripts.
"""
