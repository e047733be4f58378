"""The in-memory twin: the same protocol without a database, for tests and for learning."""
