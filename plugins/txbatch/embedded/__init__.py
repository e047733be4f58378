"""PostgreSQL and Java for one machine, from packages; knows nothing of txbatch."""
