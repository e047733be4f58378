"""One word a year; a test holds the planning, the emission and the success of a batch, each in the middle of its task."""

from typing import Any

from held import HeldSpout, held, held_topology

from txbatch import emit


class YearSpout(HeldSpout):
    by_interval = True
    parameters = ("level",)

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        held(self.of, "initialize_transaction")
        return {**curr_metadata, "start": 0, "end": 1}


topology = held_topology(YearSpout("buttons"))

if __name__ == "__main__":
    raise SystemExit(emit(topology))
