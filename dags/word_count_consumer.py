"""An Airflow DAG downstream of word_count. Asset events may come twice, or several in one run: it works once a txid."""

import json

from airflow.sdk import dag, get_current_context, task

from txbatch.orchestration import topology_asset


@dag(schedule=[topology_asset("word_count")], catchup=False, tags=["txbatch", "example"])
def word_count_consumer() -> None:
    """Writes what each batch of word_count brought, into one file per txid."""

    @task
    def summarize() -> None:
        from txbatch.orchestration.airflow import load_settings
        from txbatch.postgres.engine import connect
        from txbatch.postgres.reader import Reader

        settings = load_settings()
        folder = settings.home / "demo" / "word_count_consumer"
        folder.mkdir(parents=True, exist_ok=True)
        events = get_current_context()["triggering_asset_events"].values()
        for txid in sorted({txid for each in events for event in each for txid in event.extra["txids"]}):
            file = folder / f"{txid}.json"
            if file.exists():
                print(f"txid {txid} was summarized before")
                continue
            batches = Reader(connect(settings.database_url)).batches("word_count", limit=1_000)
            (batch,) = (row for row in batches if row["txid"] == txid)
            new = file.with_suffix(".new")
            new.write_text(json.dumps(batch, default=str))
            new.rename(file)
            print(f"txid {txid}: {batch['records']:,} lines")

    summarize()


word_count_consumer()
