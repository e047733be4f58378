"""Tasks that fail, or wait in place of failing.

`for_airflow` raises errors of txbatch for Airflow, `notes` has the note of the run, `outages` waits for a ledger or a source
that does not answer, `marks` refuses what a mark by hand leaves undone.
"""
