"""A page of another port posts to Airflow's REST with the session of an administrator, and no run begins.

A browser takes all ports of a host for one site, so that the session's cookie goes along. What keeps such a page out is that
Airflow takes nothing but JSON that is called so, which a browser lets another origin send only if Airflow allowed it to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from airflow_support import Stack
from playwright.sync_api import Browser
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route
from support import until
from ui.browser import chromium, logged_in, window
from ui.examples import served

pytestmark = pytest.mark.timeout(900)
# A DAG of no schedule: it has the runs alone that somebody begins.
DAG = "outage"
# All that a browser lets another origin send without a question, and what it asks about first.
POSTED = """async ([url, text]) => {
  const form = new FormData();
  form.append("conf", "{}");
  const told = {};
  const bodies = {
    text: new Blob([text], { type: "text/plain" }),
    form: new Blob([text], { type: "application/x-www-form-urlencoded" }),
    multipart: form,
    untyped: new Blob([text]),
    empty: undefined,
  };
  const post = (name, options) => fetch(url, { method: "POST", credentials: "include", ...options })
    .then((answer) => (told[name] = answer.type), (error) => (told[name] = error.name));
  for (const [name, body] of Object.entries(bodies)) await post(name, { mode: "no-cors", body });
  await post("json", { headers: { "content-type": "application/json" }, body: text });
  await post("json, called text", { mode: "no-cors", headers: { "content-type": "application/json" }, body: text });
  navigator.sendBeacon(url, new Blob([text], { type: "text/plain" }));
  return told;
}"""
# A form whose text is JSON, sent as if somebody had pressed its button.
SUBMITTED = """([url]) => {
  const form = document.createElement("form");
  Object.assign(form, { method: "POST", action: url, enctype: "text/plain" });
  const input = document.createElement("input");
  Object.assign(input, { name: '{"logical_date": null, "conf": {}, "note": "', value: '"}' });
  form.append(input);
  document.body.append(form);
  form.submit();
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.mark.whole
def test_no_page_of_another_port_begins_a_run(stack: Stack, browser: Browser) -> None:
    url = f"{stack.airflow.url}/api/v2/dags/{DAG}/dagRuns"
    body, before = json.dumps({"logical_date": None, "conf": {}}), stack.api.dag_runs(DAG)

    async def page(_: object) -> HTMLResponse:
        return HTMLResponse("<!doctype html><title>another port</title>")

    statuses: list[int] = []
    with (
        served(Starlette(routes=[Route("/", page)])) as elsewhere,
        window(browser, **logged_in(stack.token("admin"))) as watched,
    ):
        watched.page.on(
            "response", lambda each: statuses.append(each.status) if each.request.method == "POST" else None
        )
        watched.page.goto(elsewhere)
        told = watched.page.evaluate(POSTED, [url, body])
        assert told == {
            **dict.fromkeys(("text", "form", "multipart", "untyped", "empty"), "opaque"),
            **{"json": "TypeError", "json, called text": "opaque"},
        }
        # Playwright tells of answers while it is asked for something.
        until(lambda: watched.page.title() and len(statuses) >= 6, "not each post was answered")
        with watched.page.expect_navigation(url=url):
            watched.page.evaluate(SUBMITTED, [url])
    # Who has no session is told 401, before anything is read of a body: all of these had one.
    assert {*statuses} <= {
        httpx.codes.BAD_REQUEST,
        httpx.codes.UNSUPPORTED_MEDIA_TYPE,
        httpx.codes.UNPROCESSABLE_ENTITY,
    }
    assert stack.api.dag_runs(DAG) == before
