"""What brings a run's batch to its commit."""
