"""Topics of Kafka as sources: planned by offsets, each range read whole or refused.

`client` asks the brokers; `complaints` has why a login or TLS fails, `listener` which protocol a port speaks. `look` is one
look at a topic: partitions, their identity, their ends; `lag` says how far a stream is behind. `task` is what Spark's executors
do: `messages` reads ranges, with proof that nothing is missing; `columns` makes Arrow of messages. `fields` says which fields a
message has.
"""
