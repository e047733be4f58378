"""Reads a batch, runs the operations and aggregates to partials, in Spark."""
