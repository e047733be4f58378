"""Spouts: what a batch reads, decided without Spark.

`spout`, then `batch_spout`.
"""
