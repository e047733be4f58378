"""The pages of txbatch in Airflow: read only, as a reader of the schema report.

`app` has headers, errors and the page, `routes` the data; `airflow_auth` has all that is asked of Airflow, `asked` the limits of
requests, `reader` the connection; `reading` asks for topologies and batches, `values` for states; `shown` makes payloads of rows,
`payloads` and `state_payloads` have their fields.
"""
