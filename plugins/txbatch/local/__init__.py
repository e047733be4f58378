"""The embedded stack: what one machine needs to run txbatch for real, all of it under one folder (the *home*)."""
