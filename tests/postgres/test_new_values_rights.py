"""Who may say what a write into a table of new values does has the writer's rights: others are refused."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from sqlalchemy import Connection, Engine

from txbatch.core.errors import TerminalError
from txbatch.core.state.new_values import NewValuesTable
from txbatch.postgres.state.new_values import check_rights

SETUP = """
CREATE ROLE stranger; CREATE ROLE team; CREATE ROLE writer IN ROLE team; CREATE SCHEMA audit; GRANT ALL ON SCHEMA audit TO PUBLIC;
CREATE TABLE audit.changes (n int);
CREATE FUNCTION audit.does() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE FUNCTION audit.says() RETURNS int LANGUAGE sql AS 'SELECT 1'
"""
OTHERS = {
    "table": "ALTER TABLE audit.changes OWNER TO stranger",
    "trigger": "CREATE TRIGGER t BEFORE INSERT ON audit.changes FOR EACH ROW EXECUTE FUNCTION audit.does();"
    "ALTER FUNCTION audit.does OWNER TO stranger",
    "default": "ALTER TABLE audit.changes ALTER n SET DEFAULT audit.says(); ALTER FUNCTION audit.says OWNER TO stranger",
    "rule": "CREATE RULE r AS ON INSERT TO audit.changes DO ALSO SELECT audit.says();"
    "ALTER FUNCTION audit.says OWNER TO stranger",
    "check": "ALTER TABLE audit.changes ADD CHECK (n > audit.says()); ALTER FUNCTION audit.says OWNER TO stranger",
    "index": "ALTER FUNCTION audit.says IMMUTABLE; CREATE INDEX ON audit.changes ((n + audit.says()));"
    "ALTER FUNCTION audit.says OWNER TO stranger",
    "policy": "CREATE POLICY p ON audit.changes WITH CHECK (n > audit.says()); ALTER FUNCTION audit.says OWNER TO stranger",
    "operator": "CREATE FUNCTION audit.more(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT true';"
    "CREATE OPERATOR audit.>>> (FUNCTION = audit.more, LEFTARG = int, RIGHTARG = int);"
    "ALTER TABLE audit.changes ADD CHECK (n OPERATOR(audit.>>>) 1); ALTER FUNCTION audit.more OWNER TO stranger",
    "partition": "DROP TABLE audit.changes; CREATE TABLE audit.changes (n int) PARTITION BY RANGE (n);"
    "CREATE TABLE audit.part PARTITION OF audit.changes DEFAULT; ALTER TABLE audit.part OWNER TO stranger",
    "partition's trigger": "DROP TABLE audit.changes; CREATE TABLE audit.changes (n int) PARTITION BY RANGE (n);"
    "CREATE TABLE audit.part PARTITION OF audit.changes DEFAULT;"
    "CREATE TRIGGER t BEFORE INSERT ON audit.part FOR EACH ROW EXECUTE FUNCTION audit.does();"
    "ALTER FUNCTION audit.does OWNER TO stranger",
}


def check(connection: Connection) -> None:
    check_rights(connection, Mock(**{"state.new_values": NewValuesTable("audit", "changes")}))


@pytest.mark.parametrize("writer", ["a superuser", "writer"])
def test_what_another_owns_is_refused(engine: Engine, writer: str) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql(SETUP)
        if writer == "writer":
            connection.exec_driver_sql("ALTER TABLE audit.changes OWNER TO team; SET ROLE writer")
        check(connection)
        for statement in OTHERS.values():
            connection.exec_driver_sql(f"SAVEPOINT s; RESET ROLE; {statement}")
            if writer == "writer":
                connection.exec_driver_sql("SET ROLE writer")
            told = r"audit\..* is owned by 'stranger', of which the writer .* is no member"
            with pytest.raises(TerminalError, match=told):
                check(connection)
            connection.exec_driver_sql("ROLLBACK TO s")
        connection.rollback()
