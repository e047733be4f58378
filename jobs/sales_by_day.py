"""What each shop sold on each day, from the same table by the time of each sale; a sale that comes late is told, and restated."""

from txbatch import Count, OpaqueState, PostgresIntervalSpout, Sum, Topology, emit

FIELDS = "id bigint, shop string, amount decimal(12,2), sold_at timestamp"

topology = Topology("sales_by_day")
sales = topology.new_stream("sales", PostgresIntervalSpout("shop.sale", FIELDS, time="sold_at", source="demo_shop"))
by_day = sales.each("cast(sold_at as date)", "day date").group_by("day", "shop")
by_day.persistent_aggregate(OpaqueState("sales_by_day"), sales=Count(), amount=Sum("amount"))

if __name__ == "__main__":
    raise SystemExit(emit(topology))
