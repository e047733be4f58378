"""`txbatch demo topic`: a topic of sixteen partitions on this machine, which takes orders from the terminal."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from txbatch import settings
from txbatch.local.kafka_mock import HeldTopic, cluster
from txbatch.places import in_checkout

# The source and the topic of the example clicks.
SOURCE, TOPIC, PARTITIONS = "demo_kafka", "clicks", 16
PAGES = ("home", "search", "basket", "checkout", "help")
SENT_AT_FIRST = 160
_ORDER = re.compile(r"(send|away|back) (\d{1,6})")
_ORDERS = "Orders: send NUMBER, away PARTITION, back PARTITION, quit"
_BEGUN = """\
The topic {topic} of {partitions} partitions is at {brokers}, and is the source {source} of this checkout.
  in a terminal  bin/txbatch run jobs/clicks.py
  in the UI      Admin, Connections, Add: id txbatch_source_{source}, type txbatch, extra
                 {extra}
                 then DAGs, clicks, Trigger
{orders}"""


def demo_topic(name: str) -> str | None:
    """Return the brokers of `txbatch demo topic` while the demo runs; None for other sources, and without the demo."""
    file = _address(settings.home()) if name == SOURCE and in_checkout() else None
    return file.read_text(encoding="utf-8").strip() if file is not None and file.exists() else None


def serve(home: Path, orders: Iterable[str]) -> Iterator[str]:
    """Make the topic, send messages, and obey orders. Yield what was done."""
    with cluster() as made:
        made.create(TOPIC, PARTITIONS)
        topic = HeldTopic(made, TOPIC)
        file = _address(home)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(made.brokers + "\n", encoding="utf-8")
        try:
            extra = json.dumps({"bootstrap.servers": made.brokers})
            told = {"topic": TOPIC, "partitions": PARTITIONS, "source": SOURCE, "orders": _ORDERS}
            yield _BEGUN.format(brokers=made.brokers, extra=extra, **told)
            yield _done(topic, "send", SENT_AT_FIRST)
            for order in map(str.strip, orders):
                if order == "quit":
                    return
                found = _ORDER.fullmatch(order)
                yield _done(topic, found[1], int(found[2])) if found else _ORDERS
        finally:
            file.unlink(missing_ok=True)


def _done(topic: HeldTopic, what: str, number: int) -> str:
    """Obey one order, and return what was done."""
    if what == "send":
        clicks = [random.choice(PAGES) for _ in range(number)]  # noqa: S311 (no secrets)
        topic.send({partition: clicks[partition::PARTITIONS] for partition in range(PARTITIONS)})
        return f"sent {number:,} clicks" + (
            ", those of partitions that are away once they are back" if topic.held else ""
        )
    if number >= PARTITIONS:
        return f"the partitions are 0 to {PARTITIONS - 1}"
    if what == "away":
        topic.take_away(number)
        return f"partition {number} is away"
    topic.give_back(number)
    return f"partition {number} is back"


def _address(home: Path) -> Path:
    return home / "demo" / "kafka-brokers"
