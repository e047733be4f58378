"""The process of Spark's driver.

`session` makes the session, `stages` reports the progress, `heartbeat` and `parent` end the process, `shipped` decides which
parts of a job travel to executors.
"""
