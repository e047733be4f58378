"""The sources of the examples, which a checkout makes: a table of the embedded PostgreSQL, and a topic of a demo."""

from __future__ import annotations

from txbatch.local import shop, topic
from txbatch.places import in_checkout

# Where the source of examples is found, in a checkout.
MADE_BY = {shop.SOURCE: "the embedded PostgreSQL", topic.SOURCE: "`txbatch demo topic`"}


def example_source(name: str) -> str | None:
    """Return the URL of a source of the examples, if the source is there; None for other sources."""
    return shop.demo_source(name) or topic.demo_topic(name)


def absent(name: str | None) -> str | None:
    """Return by what a source is made, if the source is an example's and is not there now."""
    made_by = MADE_BY.get(name or "") if in_checkout() else None
    return made_by if name is not None and made_by is not None and example_source(name) is None else None
