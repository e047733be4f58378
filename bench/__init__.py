"""Measurements of txbatch against a floor and against what a user would pick instead. Never asserted in tests."""
