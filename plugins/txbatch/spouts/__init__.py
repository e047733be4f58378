"""Spouts that come with txbatch. Planning needs the standard library only; reading imports pyspark inside functions."""
