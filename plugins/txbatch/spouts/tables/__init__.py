"""Tables of PostgreSQL as sources: planned by snapshots, read by COPY.

`windows` says in SQL which rows a range has, `columns` how fields are read; `connection` asks the server, alone
with psycopg2. `description` is a table as the server describes the table, `prepare` what the table lacks. `server` says
whether the server has the same history; `planning` cuts ranges, `intervals` plans by time, `stretches` cuts for tasks;
`copy_text` reads, in Spark's executors. `reads_table` is the part that spouts share; `late_rows` finds rows that came after a
batch.
"""
