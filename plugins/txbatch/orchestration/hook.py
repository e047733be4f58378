"""The connection type `txbatch`: the PostgreSQL database of the ledger, or of a state apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from txbatch.core.errors import NotMigrated
from txbatch.orchestration.airflow import DATABASE_CONN_ID
from txbatch.postgres.database.connections import url_of
from txbatch.provider import FIELDS, PLACEHOLDERS, RELABELING

if TYPE_CHECKING:
    from sqlalchemy import Engine


class TxbatchHook(BaseHook):
    """Connects to the database of a connection, and ignores TXBATCH_DATABASE_URL."""

    conn_name_attr = "txbatch_conn_id"
    default_conn_name = DATABASE_CONN_ID
    conn_type = "txbatch"
    hook_name = "txbatch"

    def __init__(self, txbatch_conn_id: str = DATABASE_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.txbatch_conn_id = txbatch_conn_id

    def get_conn(self) -> Engine:
        """Return an engine. Raise DefinitionError if the connection names no server."""
        from txbatch.postgres.database.engine import connect

        what = f"the Airflow connection {self.txbatch_conn_id!r}"
        return connect(url_of(self.get_connection(self.txbatch_conn_id)), application_name="txbatch hook", what=what)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the database is usable, with a line about its content or the error. Called by the form's button Test."""
        try:
            engine = self.get_conn()
            try:
                return True, _held(engine)
            finally:
                engine.dispose()
        except Exception as error:
            return False, str(error)

    # Airflow 3.1 calls the next two methods; newer versions read txbatch.provider instead.

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return the labels and example values of the form's own fields."""
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


def _held(engine: Engine) -> str:
    """Return a line with the content of a database: the ledger, or states apart.

    Raise NotMigrated if the database holds neither, or a ledger of another version.
    """
    from txbatch.postgres.database.engine import check_server
    from txbatch.postgres.database.migrate import check_migrated
    from txbatch.postgres.database.queries import query
    from txbatch.postgres.database.transaction import transaction

    with transaction(engine) as connection:
        check_server(connection)
        ledger, apart = (connection.execute(query(name)).scalar_one() for name in ("has_ledger", "has_apart"))
    if ledger:
        check_migrated(engine)
        return "the ledger is there, and of this version"
    if apart:
        return "states apart are there, and no ledger"
    raise NotMigrated(
        "neither a ledger nor a state apart is there yet: see whether it is the database that you mean; if it is, "
        "`txbatch migrate` makes a ledger, the first run of a topology its states apart"
    )
