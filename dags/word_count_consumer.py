"""An Airflow DAG downstream of word_count. Asset events may come twice, or several in one run: it works once a txid."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airflow.sdk import dag, get_current_context, task

from txbatch.orchestration import open_reports, topology_asset

HOME = Path(os.environ.get("TXBATCH_HOME") or Path(__file__).parents[1] / ".txbatch")


def told(extra: dict[str, Any]) -> set[int]:
    """The txids an event names. Whoever may write to Airflow's API can send one: what is no txid is passed over."""
    txids = extra.get("txids")
    return {txid for txid in txids if type(txid) is int and 0 < txid < 2**63} if isinstance(txids, list) else set()


@dag(schedule=[topology_asset("word_count")], catchup=False, tags=["txbatch", "example"])
def word_count_consumer() -> None:
    """Writes what each batch of word_count brought, into one file per txid."""

    @task
    def summarize() -> None:
        folder = HOME / "demo" / "word_count_consumer"
        folder.mkdir(parents=True, exist_ok=True)
        events = get_current_context()["triggering_asset_events"].values()
        reports = open_reports()
        for txid in sorted({txid for each in events for event in each for txid in told(event.extra)}):
            file = folder / f"{txid}.json"
            if file.exists():
                print(f"txid {txid} was summarized before")
                continue
            batch = reports.batch("word_count", txid)
            if batch is None or batch.status != "committed":
                print(f"txid {txid} is {batch.status if batch else 'unknown'}: the event is passed over")
                continue
            new = file.with_suffix(".new")
            new.write_text(json.dumps(asdict(batch), default=str))
            new.rename(file)
            print(f"txid {txid}: {batch.records:,} lines")

    summarize()


word_count_consumer()
