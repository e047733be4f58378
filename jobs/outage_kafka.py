"""Records per partition of a topic with sixteen partitions, one of which fails: `txbatch demo outage --kafka` shows it."""

from txbatch import Count, OpaqueKafkaSpout, OpaqueState, Sum, Topology, emit

topology = Topology("demo_outage")
(
    topology.new_stream("log", OpaqueKafkaSpout("outage", "value string", source="demo_kafka"))
    .map(["split(value, ' ')[0]", "cast(split(value, ' ')[1] as bigint)"], "partition string, amount bigint")
    .group_by("partition")
    .persistent_aggregate(OpaqueState("demo_outage"), records=Count(), amount=Sum("amount"))
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
