"""A Spark application that emits batch after batch in one session: the folders of attempts come over a socket.

The driver is the product's; but whoever sends it attempts may be killed at any time, and the next one goes on.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from multiprocessing.connection import Connection, Listener

from pyspark.sql import SparkSession

from txbatch.launch.driver import Driver
from txbatch.launch.job_file import Job, load_job
from txbatch.spark.process.parent import die_with_parent
from txbatch.storage.staging import AttemptFolder


def main(job: Job, socket: str) -> None:
    """Serve until it is asked for none."""
    with ExitStack() as ending, Listener(socket) as listener:
        driver = Driver(job.topology, job.path, ending, "flights of a year")
        serving = True
        while serving:
            with listener.accept() as steps:
                serving = serve(driver, steps)


def serve(driver: Driver, steps: Connection) -> bool:
    """Emit what one process asks for, until it is gone; False once that is nothing."""
    while True:
        try:
            asked = steps.recv()
        except EOFError:
            return True
        if not asked:
            return False
        error = "" if driver.emit_all(asked) else str(AttemptFolder(asked[0]).read_error())
        steps.send((SparkSession.active().sparkContext.applicationId, error))


if __name__ == "__main__":
    die_with_parent()
    main(load_job(sys.argv[1]), sys.argv[2])
