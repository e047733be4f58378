"""What each shop sold, from a table of PostgreSQL to which sales are added: each sale once, whole transactions in a batch."""

from txbatch import Count, OpaqueState, PostgresSpout, Sum, Topology, emit

FIELDS = "id bigint, shop string, amount decimal(12,2)"

topology = Topology("sales")
sales = topology.new_stream("sales", PostgresSpout("shop.sale", FIELDS, source="demo_shop"))
sales.group_by("shop").persistent_aggregate(OpaqueState("sales"), sales=Count(), amount=Sum("amount"))

if __name__ == "__main__":
    raise SystemExit(emit(topology))
