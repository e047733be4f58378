"""The command `txbatch`."""
