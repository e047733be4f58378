"""The connection type `txbatch`: the PostgreSQL that holds the ledger, or a state apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from txbatch.orchestration.airflow import DATABASE_CONN_ID, url_of
from txbatch.provider import FIELDS, PLACEHOLDERS, RELABELING

if TYPE_CHECKING:
    from sqlalchemy import Engine


class TxbatchHook(BaseHook):
    """Connects to the database of a connection, whatever TXBATCH_DATABASE_URL says."""

    conn_name_attr = "txbatch_conn_id"
    default_conn_name = DATABASE_CONN_ID
    conn_type = "txbatch"
    hook_name = "txbatch"

    def __init__(self, txbatch_conn_id: str = DATABASE_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.txbatch_conn_id = txbatch_conn_id

    def get_conn(self) -> Engine:
        """Return an engine. DefinitionError where the connection names no server."""
        from txbatch.postgres.engine import connect

        return connect(url_of(self.get_connection(self.txbatch_conn_id)), application_name="txbatch hook")

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the ledger can be used, and a line that says what is there or wrong: the form's button Test."""
        from txbatch.postgres.engine import check_server, transaction
        from txbatch.postgres.migrate import check_migrated

        try:
            engine = self.get_conn()
            with transaction(engine) as connection:
                check_server(connection)
            check_migrated(engine)
        except Exception as error:
            return False, str(error)
        return True, "the ledger is there, and of this version"

    # Airflow 3.1 asks the hook; newer ones find the same in txbatch.provider, and ask no more.

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how the form's own fields are called, and what stands in them as an example."""
        return {"hidden_fields": [], "relabeling": RELABELING, "placeholders": PLACEHOLDERS}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the form's further fields."""
        from flask_appbuilder.fieldwidgets import BS3TextFieldWidget
        from wtforms import StringField

        return {
            name: StringField(field["label"], widget=BS3TextFieldWidget(), description=field["description"])
            for name, field in FIELDS.items()
        }
