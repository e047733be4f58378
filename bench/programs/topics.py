"""One warm session: offset and value of a topic by KafkaSpout; and one process that only consumes.

The source is `bench` by its variable. Run by spark-submit.
"""

import subprocess
import sys

from bench.programs.turns import cpu_of_all, in_turns
from bench.topics import FIELDS, MESSAGES, PARTITIONS, SOURCE, TOPIC
from pyspark.sql import SparkSession

from txbatch import KafkaSpout
from txbatch.core.batch.transaction import TransactionAttempt
from txbatch.settings import source_url
from txbatch.spark.process.session import configured

CONSUMER = """
import sys
from confluent_kafka import Consumer, TopicPartition
brokers, topic, partitions, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
options = {"bootstrap.servers": brokers, "group.id": "bare", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10}
consumer, found = Consumer(options), 0
consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
while found < wanted:
    for message in consumer.consume(10_000, 0.5):
        assert message.error() is None, message.error()
        message.offset(), message.value()
        found += 1
consumer.close()
assert found == wanted, found
"""


def main(_: str) -> None:
    """Both read all messages, and write nowhere."""
    spark = configured(SparkSession.builder.appName("topics").getOrCreate())
    spout = KafkaSpout(TOPIC, FIELDS, source=SOURCE, max_records=MESSAGES)
    plan = spout.coordinator().initialize_transaction(1, None, None)
    assert plan is not None
    command = [sys.executable, "-c", CONSUMER, source_url(SOURCE), TOPIC, str(PARTITIONS), str(PARTITIONS * MESSAGES)]

    def into_spark() -> None:
        frame = spout.emit_batch(spark, TransactionAttempt(1, 1), plan)
        frame.write.format("noop").mode("overwrite").save()

    in_turns(
        {"KafkaSpout": into_spark, "bare consumer": lambda: subprocess.run(command, check=True)},
        lambda: None,
        cpu_of_all,
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
