"""Describes the installed package to Airflow: the connection type `txbatch`, and the fields of the connection's form."""

from __future__ import annotations

from typing import Any

RELABELING = {"schema": "Database", "extra": "Further options of libpq, or of Kafka's clients (JSON)"}
PLACEHOLDERS = {"host": "db.example.org", "port": "5432", "schema": "txbatch", "login": "txbatch"}
# They are stored in the connection's extra, and given to libpq as they are.
FIELDS = {
    "sslmode": {
        "label": "SSL mode",
        "description": "disable, prefer, require, verify-ca or verify-full",
        "schema": {"type": ["string", "null"]},
    },
    "sslrootcert": {
        "label": "SSL root certificate",
        "description": "A file, where the server's certificate is verified",
        "schema": {"type": ["string", "null"]},
    },
}


def provider_info() -> dict[str, Any]:
    """Return the description for the entry point `apache_airflow_provider`."""
    connection = {
        "connection-type": "txbatch",
        "hook-name": "txbatch",
        "hook-class-name": "txbatch.orchestration.hook.TxbatchHook",
        "ui-field-behaviour": {"hidden-fields": [], "relabeling": RELABELING, "placeholders": PLACEHOLDERS},
        "conn-fields": FIELDS,
    }
    return {
        "package-name": "txbatch",
        "name": "txbatch",
        "description": "Exactly-once batch aggregation on Airflow, Spark and PostgreSQL",
        "connection-types": [connection],
    }
