"""The pages of txbatch in Airflow: read only, as a reader of the schema `report`.

`app` has the routes, `airflow_auth` all that is asked of Airflow, `asked` the limits of requests, `reader` the connection;
`reading` asks for topologies and batches, `values` for states, `shown` makes payloads of rows, `payloads` says what goes out.
"""
