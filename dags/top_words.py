"""The Airflow DAG of the topology top_words: a run for each commit of word_count, whose asset it waits for."""

from txbatch.orchestration import topology_asset, topology_dag

dag = topology_dag(
    "jobs/top_words.py",
    schedule=[topology_asset("word_count")],
    is_paused_upon_creation=True,
    tags=["txbatch", "example"],
)
