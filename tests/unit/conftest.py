"""Hypothesis without a stop-watch: the machine may be busy."""

from hypothesis import settings

settings.register_profile("txbatch", deadline=None, max_examples=60)
settings.load_profile("txbatch")
