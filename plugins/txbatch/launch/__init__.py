"""spark-submit, the application that emits attempt after attempt, and the driver that it runs."""
