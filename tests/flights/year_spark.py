"""A Spark application that emits batch after batch in one session: the folders of attempts come over a socket.

Whoever sends them may be killed at any time, and the next one goes on.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection, Listener

from pyspark.sql import SparkSession

from txbatch.driver import emit_batch
from txbatch.job_file import Job, load_job
from txbatch.spark.parent import die_with_parent
from txbatch.spark.session import session
from txbatch.storage.staging import AttemptFolder


def main(job: Job, socket: str) -> None:
    """Serve until the word `end`."""
    with session("flights of a year") as spark, Listener(socket) as listener:
        serving = True
        while serving:
            with listener.accept() as steps:
                serving = serve(job, spark, steps)


def serve(job: Job, spark: SparkSession, steps: Connection) -> bool:
    """Emit what one process asks for, until it is gone; False after the word `end`."""
    while True:
        try:
            folder = steps.recv()
        except EOFError:
            return True
        if folder == "end":
            return False
        error = ""
        try:
            attempt = AttemptFolder(folder)
            emit_batch(job.topology, attempt.read_assignment(), attempt, job.path, spark)
        except Exception as problem:
            error = str(problem)
        steps.send((spark.sparkContext.applicationId, error))


if __name__ == "__main__":
    die_with_parent()
    main(load_job(sys.argv[1]), sys.argv[2])
