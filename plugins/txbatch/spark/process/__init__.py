"""The process of Spark's driver.

`session` makes the session, `stages` tells how far it is, `heartbeat` and `parent` end it, `shipped` says what travels
to executors.
"""
