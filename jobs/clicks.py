"""Clicks per page, from a topic of Kafka: each message once, and a partition that is away is counted when it is back."""

from txbatch import Count, OpaqueKafkaSpout, OpaqueState, Topology, emit

topology = Topology("clicks")
clicks = topology.new_stream("clicks", OpaqueKafkaSpout("clicks", "value string", source="demo_kafka"))
clicks.group_by("value").persistent_aggregate(OpaqueState("clicks"), clicks=Count())

if __name__ == "__main__":
    raise SystemExit(emit(topology))
