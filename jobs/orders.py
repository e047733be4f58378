"""What shops sell, day by day: the lines of orders, joined with their orders, with the city of the shop looked up.

A line whose quantity or price is no number goes to report.orders_quarantine, and all others count.
"""

import os
from decimal import Decimal
from pathlib import Path

from txbatch import AppendState, Count, IntervalSpout, OpaqueState, StaticFiles, StaticState, Sum, Topology, emit

FOLDER = Path(os.environ.get("ORDERS_FOLDER") or Path(__file__).resolve().parents[1] / ".txbatch" / "demo" / "orders")
ORDERS = "order_id bigint, shop string, ordered_at timestamp"
LINES = "order_id bigint, item string, quantity string, price string, sold_at timestamp"
SHOPS = "shop string, city string"


def rows(spark, paths):
    """The shops: CSV files with a line for each."""
    return spark.read.csv(paths, SHOPS)


def parsed(line):
    """A line with its numbers; it fails for one that has none."""
    return line["order_id"], line["item"], int(line["quantity"]), Decimal(line["price"])


topology = Topology("orders", max_pending=4, quarantine=100)
shops = topology.new_static_state(StaticState("shops", StaticFiles(FOLDER / "shops", "*.csv", rows), SHOPS))
options = {"header": True}
orders = topology.new_stream(
    "orders", IntervalSpout(FOLDER / "orders", ORDERS, time="ordered_at", format="csv", options=options)
)
lines = topology.new_stream(
    "lines", IntervalSpout(FOLDER / "lines", LINES, time="sold_at", format="csv", options=options)
)

good = lines.map(parsed, "order_id bigint, item string, quantity int, price decimal(10,2)")

# Per batch, which is a day here: a line whose order is of another day has none.
sold = (
    topology.join(good, orders, on="order_id", how="left", name="sold")
    .state_query(shops, "shop")
    .each("coalesce(city, 'unknown')", "place string")
    .each("cast(quantity * price as decimal(20,2))", "amount decimal(20,2)")
    .project("order_id", "item", "quantity", "amount", "shop", "place")
)
sold.persist(AppendState("order_lines"))
sold.group_by("place").persistent_aggregate(OpaqueState("turnover"), lines=Count(), amount=Sum("amount"))

if __name__ == "__main__":
    raise SystemExit(emit(topology))
