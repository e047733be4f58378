"""The sources that the page of spouts shows are read by TLS, from a variable and from a connection of Airflow."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import SecretsMasker
from spouts.kafka_broker import broker
from spouts.kafka_tls import Authority, in_files
from spouts.kafka_topic import VARIABLE, StreamOfTopic

from txbatch import settings
from txbatch.orchestration.airflow import resolve_settings

SECRET = "heron-umbrella-42"
PAGE = (Path(__file__).parents[2] / "docs" / "spouts.md").read_text(encoding="utf-8")
SHOWN: list[dict[str, str]] = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
BY_LOGIN, BY_CERTIFICATE = (
    next(each for each in SHOWN if name in each) for name in ("sasl.username", "ssl.key.location")
)


def of_this_test(shown: dict[str, str], brokers: str, folder: Path, authority: Authority) -> dict[str, str]:
    """Return the page's options with brokers, files and secrets of this test."""
    made = in_files({"ssl.ca.pem": authority.pem, **authority.client(SECRET)}, folder)
    told = {"bootstrap.servers": brokers, "sasl.password": SECRET, **made}
    return {name: told.get(name, value) for name, value in shown.items()}


def as_connection(options: dict[str, str]) -> str:
    """Return a connection: name and password of the login are fields of its form, the rest is its extra."""
    fields = {"login": options.pop("sasl.username", None), "password": options.pop("sasl.password", None)}
    given: dict[str, Any] = {name: value for name, value in fields.items() if value}
    return json.dumps({"conn_type": "txbatch", "extra": options, **given})


@pytest.mark.parametrize("form", ["variable", "connection"])
@pytest.mark.parametrize("shown", [BY_LOGIN, BY_CERTIFICATE], ids=["login", "certificate"])
def test_the_examples_of_the_page_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: dict[str, str], form: str
) -> None:
    authority = Authority()
    with broker(tls=authority.context(asks=shown is BY_CERTIFICATE)) as kafka:
        topic = StreamOfTopic()
        kafka.create(topic.name, 1)[0].append(b"home", b"cart")
        kafka.password = SECRET if shown is BY_LOGIN else None
        options = of_this_test(shown, kafka.brokers, tmp_path, authority)
        monkeypatch.delenv(VARIABLE, raising=False)
        if form == "variable":
            monkeypatch.setenv(VARIABLE, json.dumps(options))
        else:
            monkeypatch.setenv("AIRFLOW_CONN_TXBATCH_SOURCE_SHOP", as_connection(options))
            resolve_settings()
        try:
            assert topic.values(topic.plan()) == ["cart", "home"]
        finally:
            settings.sources_from(lambda name: None)


def test_airflow_hides_a_password_by_itself_and_a_key_by_the_setting_of_the_page() -> None:
    (named,) = re.findall(r"AIRFLOW__CORE__SENSITIVE_VAR_CONN_NAMES=(\w+)", PAGE)
    masker = SecretsMasker()
    masker.hide_sensitive_var_conn_fields = True
    told = {"sasl.password": SECRET, "ssl.key.password": SECRET, "ssl.key.pem": SECRET}
    for sensitive, hidden in ((set[str](), 2), ({named}, 3)):
        masker.sensitive_variables_fields = [*SecretsMasker().sensitive_variables_fields, "password", *sensitive]
        assert list(map(masker.should_hide_value_for_key, told)).count(True) == hidden
