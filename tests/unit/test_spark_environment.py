"""Which environment variables Spark's processes are told."""

from __future__ import annotations

import pytest

from txbatch.launch.submission import secret, spark_environment

KEPT = {
    **dict.fromkeys(
        ["PATH", "HOME", "LANG", "TZ", "PWD", "OLDPWD", "USER", "JAVA_HOME", "TXBATCH_HOME", "TXBATCH_STAGING"], "x"
    ),
    **dict.fromkeys(
        ["SPARK_AUTH_SECRET", "_SPARK_AUTH_SECRET", "PYSPARK_GATEWAY_SECRET", "HADOOP_TOKEN_FILE_LOCATION"], "x"
    ),
    **dict.fromkeys(["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "KRB5CCNAME"], "x"),
    **dict.fromkeys(
        ["GOOGLE_APPLICATION_CREDENTIALS", "WORD_COUNT_FOLDER", "KEYBOARD", "MONKEY", "SECRETARY", "PASSAGE"], "x"
    ),
    **{
        "HTTP_PROXY": "http://me:pass@proxy:1",
        "https_proxy": "http://me:pass@proxy:1",
        "SITE": "https://h/a:b",
        "AT": "a:b@c",
    },
}
HIDDEN = {
    **dict.fromkeys(["AIRFLOW_CONN_TXBATCH", "AIRFLOW_VAR_API_KEY", "AIRFLOW__CORE__FERNET_KEY", "_AIRFLOW_X"], "x"),
    **dict.fromkeys(
        [
            "TXBATCH_DATABASE_URL",
            "TXBATCH_DATABASE_URL_WAREHOUSE",
            "TXBATCH_SOURCE_SHOP",
            "PGPASSWORD",
            "PGPASSFILE",
            "PGSERVICEFILE",
        ],
        "x",
    ),
    **dict.fromkeys(
        ["AIRFLOW_ADMIN_PASSWORD", "POSTGRES_PASSWORD", "DATABASE_URL", "APP_DATABASE_URL", "SENTRY_DSN"], "x"
    ),
    **dict.fromkeys(
        ["GITHUB_TOKEN", "token", "MY_SECRET", "SECRET_KEY", "db_passwd", "SSH_PASSPHRASE", "OPENAI_API_KEY"], "x"
    ),
    **dict.fromkeys(
        ["STRIPE_APIKEY", "SIGNING_PRIVATE_KEY", "MY_CREDENTIALS", "MYSQL_PASSWORD_FILE", "ACCESS_KEY"], "x"
    ),
    **{"REDIS_URL": "redis://:geheim@host:1/0", "ANY": "postgresql://me:geheim@host/db", "TWO": "a=1 b=amqp://u:p@h"},
}


@pytest.mark.parametrize(("name", "value"), KEPT.items(), ids=KEPT)
def test_what_spark_needs_is_kept(name: str, value: str) -> None:
    assert not secret(name, value)


@pytest.mark.parametrize(("name", "value"), HIDDEN.items(), ids=HIDDEN)
def test_what_may_be_a_secret_is_not_told(name: str, value: str) -> None:
    assert secret(name, value)


def test_a_job_may_need_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA_PASSWORD", "OTHER_PASSWORD", "TXBATCH_DATABASE_URL"):
        monkeypatch.setenv(name, "geheim")
    assert not {"KAFKA_PASSWORD", "OTHER_PASSWORD"} & spark_environment().keys()
    monkeypatch.setenv("TXBATCH_SPARK_ENVIRONMENT", "KAFKA_PASSWORD, nosuch")
    told = spark_environment()
    assert told["KAFKA_PASSWORD"] == "geheim"
    assert not {"OTHER_PASSWORD", "TXBATCH_DATABASE_URL"} & told.keys()
