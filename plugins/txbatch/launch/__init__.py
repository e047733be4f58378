"""Runs spark-submit, the application for attempt after attempt, and the driver inside Spark.

Read `job_file`, `submission`, `application`, `driver`, `bulk` in this order; then `emit_again`. Checks of a job before the
start of Spark: `expressions`, `travelling`. The search for job files: `job_search`.
"""
