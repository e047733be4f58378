"""spark-submit, the application that emits attempt after attempt, and the driver that it runs.

Read `job_file`, `submission`, `application`, `driver`, `bulk` in this order; then `emit_again`. What is checked of a job
before Spark is started: `expressions`, `travelling`. Where job files are found: `job_search`.
"""
