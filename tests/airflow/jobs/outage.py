"""A test takes the ledger away in the middle of each task of a batch."""

from held import HeldSpout, held_topology

from txbatch import emit

topology = held_topology(HeldSpout("outage"))

if __name__ == "__main__":
    raise SystemExit(emit(topology))
