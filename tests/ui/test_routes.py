"""Each route of the pages: what it answers, to whom, and what it refuses; with Airflow's own login in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sizes import some_of
from ui.conftest import ROLES, Site
from ui.seeded import DIGITS, FAILING, HOSTILE_RUN, MUCH, RESTATE, RESTATED, RTL, TAG, TOPOLOGIES, WAITING

from txbatch.ui import payloads, state_payloads

PAYLOADS = Path(__file__).parent / "payloads"
T = "/api/topologies/{0}"
KEY = "key=B6&key=JFK"
# Each route on a topology, with what it answers.
ROUTES = {
    T: payloads.One,
    f"{T}/turn?limit=60": payloads.Turn,
    f"{T}/overview": payloads.Overview,
    f"{T}/batches": payloads.Batches,
    f"{T}/batches/1": payloads.Detail,
    f"{T}/batches/1/changes": state_payloads.Changes,
    f"{T}/committed?before=2013-01-05T00:00:00Z": state_payloads.Committed,
    f"{T}/intervals": payloads.Intervals,
    f"{T}/partitions?first=1&last=4": payloads.Partitions,
    f"{T}/states/{{0}}/keys": state_payloads.Keys,
    f"{T}/states/{{0}}/why?{{1}}": state_payloads.Why,
    f"{T}/states/{{0}}/as-of?txid=1&{{1}}": state_payloads.AsOf,
    f"{T}/states/{{0}}/changes?from=1&to=3": state_payloads.Changes,
    f"{T}/runs/manual": payloads.Run,
}
OF_NO_TOPOLOGY = {"/api/topologies": payloads.Topologies, "/api/errors/{}": payloads.Explained}
# What no reason names: code, a driver, a place, a role, a host.
LEAKS = re.compile(
    r"Traceback|psycopg|sqlalchemy|site-packages|\.py\b|asks_for_pages|127\.0\.0\.1|\.s\.PGSQL|/(?:tmp|dev|var|home)/"
)
KEYS = {"flights": KEY, "clicks": "key=the"}
HOSTILE = [
    *(
        "~",
        ".",
        "..",
        "-x",
        "a b",
        "a/b",
        "%00",
        "a%00",
        "%2e%2e",
        "*",
        "%27;--",
        "<script>",
        quote(RTL),
        "é",
        "x" * 201,
    ),
    *("%f0%9f%92%a9", "~~", "flights%2F..%2Fclicks"),
]
TXIDS = [
    "0",
    "-1",
    "1e3",
    "1.0",
    "9223372036854775808",
    str(2**64),
    "x",
    "%20",
    "0x1",
    "\uff11",
    "null",
    "%00",
    "1;1",
    "1%201",
]
EXAMPLES = {
    "topologies": payloads.Topologies,
    "topology": payloads.One,
    "overview": payloads.Overview,
    "batches": payloads.Batches,
    "batch": payloads.Detail,
    "batch_changes": state_payloads.Changes,
    "state_changes": state_payloads.Changes,
    "intervals": payloads.Intervals,
    "partitions": payloads.Partitions,
    "keys": state_payloads.Keys,
    "why": state_payloads.Why,
    "as_of": state_payloads.AsOf,
    "committed": state_payloads.Committed,
    "run": payloads.Run,
    "explained": payloads.Explained,
    "error": payloads.Problem,
}
few = settings(
    max_examples=some_of(60, 1_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def blank(path: str) -> str:
    """A path of `ROUTES` or of the OpenAPI text, with all that a request fills in left blank."""
    return re.sub(r"/(1|manual)(?=/|$)", "/{}", re.sub(r"\{\w+\}", "{}", path.partition("?")[0]))


ANSWERED: dict[str, Any] = {blank(route): kind for route, kind in ROUTES.items()} | OF_NO_TOPOLOGY


def routes(topology: str) -> list[str]:
    return [route.format(topology, KEYS[topology]) for route in ROUTES]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("role", [None, *ROLES, "one"])
def test_each_route_answers_each_role_by_the_rights_of_its_dag(site: Site, route: str, role: str | None) -> None:
    for topology in ("flights", "clicks"):
        expected = 401 if role is None else 403 if role == "one" and topology != "flights" else 200
        path = route.format(topology, KEYS[topology])
        for more in ("", f"{'&' if '?' in path else '?'}dag_id=flights"):
            answer = site.get(path + more, role)
            assert answer.status_code == expected, (path, answer.text)
            if expected == 200:
                msgspec.convert(answer.json(), ROUTES[route], strict=True)
            else:
                assert [*answer.json()] == ["detail"]


def test_with_teams_a_topology_without_a_dag_is_shown_to_administrators_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "true")
    monkeypatch.setattr("airflow.models.dag.DagModel.get_team_name", lambda dag_id: None)
    for role in ROLES:
        listed = [each["topology"] for each in site.told("/api/topologies", role)["topologies"]]
        assert listed == (list(TOPOLOGIES) if role == "admin" else ["flights"])
        assert site.get(T.format("clicks"), role).status_code == (200 if role == "admin" else 403)
        assert site.get(T.format("flights"), role).status_code == 200


@pytest.mark.parametrize("role", [None, *ROLES, "one"])
def test_the_list_has_the_topologies_that_a_user_may_read(site: Site, role: str | None) -> None:
    answer = site.get("/api/topologies", role)
    if role is None:
        assert answer.status_code == 401
        return
    told = msgspec.convert(answer.json(), payloads.Topologies)
    assert [each.topology for each in told.topologies] == (["flights"] if role == "one" else list(TOPOLOGIES))


@pytest.mark.parametrize("role", [None, *ROLES, "one"])
def test_the_page_of_an_error_is_told_to_whoever_is_logged_in(site: Site, role: str | None) -> None:
    answer = site.get("/api/errors/tx301", role)
    if role is None:
        assert answer.status_code == 401
        return
    told = msgspec.convert(answer.json(), payloads.Explained)
    assert (told.code, told.text.startswith("## TX301 BadRecord"), "**Do this.**" in told.text) == ("TX301", True, True)
    for code in ("TX000", "TX3011", "..", "%2e%2e%2f", "<b>", "é", "x" * 9_000):
        answer = site.get(f"/api/errors/{code}", role)
        assert answer.status_code in (404, 422), code
        assert [*answer.json()] == ["detail"]


def test_a_token_of_nobody_is_refused(site: Site) -> None:
    for headers in (
        {"Authorization": "Bearer nonsense"},
        {"Cookie": "_token=nonsense"},
        {"Authorization": "Basic eDp4"},
    ):
        assert site.client.get("/api/topologies", headers=headers).status_code in (401, 403)


def test_the_cookie_of_a_session_is_a_login(site: Site) -> None:
    answer = site.client.get("/api/topologies", headers={"Cookie": f"_token={site.tokens['viewer']}"})
    assert answer.status_code == 200


def test_the_page_and_its_files_are_public_and_hold_no_data(site: Site) -> None:
    page, script = (site.get(path, None) for path in ("/page", "/static/js/main.js"))
    assert page.headers["content-type"].startswith("text/html")
    assert script.headers["content-type"].startswith("text/javascript")
    for answer in (page, script):
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
        again = site.client.get(answer.request.url.path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for name in (
        "secret.py",
        "../app.py",
        "%2e%2e/app.py",
        "js/nosuch.js",
        "js",
        "",
        "js%2Fmain.js%00",
        "/etc/passwd",
    ):
        assert site.get(f"/static/{name}", None).status_code in (404, 422)


def test_each_answer_has_the_headers_that_keep_others_out(site: Site) -> None:
    for path in ("/page", "/static/js/main.js", "/static/nosuch", "/api/topologies", "/nosuch", "/api/topologies/~"):
        for role in (None, "viewer"):
            headers = site.get(path, role).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert "frame-ancestors 'self'" in headers["content-security-policy"]
            assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")
            if path.startswith("/api"):
                assert headers["cache-control"] == "no-store"


def test_nothing_is_changed_by_a_request(site: Site) -> None:
    for path in ("/page", "/api/topologies", *routes("flights")):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert site.client.request(method, path).status_code == 405


def test_the_description_of_the_routes_is_behind_the_login(site: Site) -> None:
    assert site.get("/api/openapi.json", None).status_code == 401
    told = site.told("/api/openapi.json", "viewer")
    assert {*told["paths"]} >= {"/api/topologies", "/api/topologies/{dag_id}/batches/{txid}"}
    assert {method for path in told["paths"].values() for method in path} == {"get"}


# ---- what is answered


def test_a_topology_is_told_with_what_fails_who_waits_and_what_the_user_may_do(site: Site) -> None:
    told = site.told(T.format("flights"))
    of = told["topology"]
    asked = ("zone", "newest_txid", "current_to_txid", "whole_to", "in_flight", "failing", "waiting", "gaps")
    assert [of[name] for name in asked] == ["America/New_York", 34, 31, "2013-01-13T05:00:00Z", 2, 1, 2, 1]
    assert (told["job"], told["paused"], told["show_values"]) == ("jobs/flights.py", True, True)
    assert told["dags"] == {"verify": "flights.verify", "rebuild": None, "gc": "txbatch.gc"}
    assert [site.told(T.format("flights"), role)["may_trigger"] for role in ("viewer", "user")] == [False, True]
    (failing,) = told["failing"]
    assert (failing["txid"], failing["attempt"], failing["error_code"]) == (FAILING, "33:2", "TX301")
    assert TAG in failing["error"]
    batch, run = told["waiting"]
    assert (batch["txid"], batch["waits_for_txid"], run["txid"], run["run"]) == (
        *(WAITING, FAILING, None, "airflow:flights:scheduled__2013-02-04T05:00:00+00:00"),
    )
    assert [state["state"] for state in told["states"]] == sorted([TAG, "flights"])
    assert [(stream["stream"], stream["by_partition"]) for stream in told["streams"]] == [("flights", False)]
    (clicked,) = site.told(T.format("clicks"))["streams"]
    assert clicked["by_partition"] is True


def test_a_topology_is_told_with_how_many_partitions_were_left_out(site: Site) -> None:
    assert [site.told(T.format(name))["topology"]["left_out"] for name in ("clicks", "flights", "orders")] == [1, 0, 0]


def test_a_topology_without_a_batch_is_told(site: Site) -> None:
    told = site.told(T.format("orders"))
    assert (told["topology"]["newest_txid"], told["may_trigger"], told["paused"]) == (None, False, None)
    assert site.told(f"{T}/overview".format("orders")) == {"last": None, "exceptions": [], "more": False}
    assert site.told(f"{T}/batches".format("orders")) == {"batches": [], "next": None}
    empty = site.told(f"{T}/intervals".format("orders"))
    assert (empty["span"]["first"], empty["intervals"], empty["gaps"]) == (None, [], [])


def test_the_overview_has_what_is_not_simply_committed(site: Site) -> None:
    told = site.told(f"{T}/overview".format("flights"))
    looks = {2: "replaced", 31: "restate", 32: "aborted", 33: "failing", 34: "emitted"}
    assert told == {"last": 34, "exceptions": [{"txid": n, "look": look} for n, look in looks.items()], "more": False}


def test_batches_are_paged_by_their_txids(site: Site) -> None:
    seen, before = [], None
    while True:
        asked = f"?limit=13{'' if before is None else f'&before={before}'}"
        page = site.told(f"{T}/batches{asked}".format("flights"))
        seen += [batch["txid"] for batch in page["batches"]]
        before = page["next"]
        if before is None:
            break
    assert seen == list(range(34, 0, -1))
    failed = site.told(f"{T}/batches?failed=true".format("flights"))["batches"]
    assert [(batch["txid"], batch["failing"]) for batch in failed] == [(FAILING, True)]
    aborted = site.told(f"{T}/batches?status=aborted".format("flights"))["batches"]
    assert [batch["txid"] for batch in aborted] == [32]
    assert RTL not in aborted[0]["reason"]  # stored as one printable line
    given_up = {batch["txid"]: batch["aborted_at"] for batch in site.told(f"{T}/batches".format("flights"))["batches"]}
    assert [txid for txid, moment in given_up.items() if moment] == [32]


def test_a_batch_is_told_with_the_proof_that_it_counts_once(site: Site) -> None:
    told = site.told(f"{T}/batches/30".format("flights"))
    assert [(each["attempt"], each["status"]) for each in told["attempts"]] == [
        ("30:1", "failed"),
        ("30:2", "committed"),
    ]
    proof = told["proof"]
    assert (proof["attempts_tried"], proof["attempt_that_counted"], proof["equal"]) == (2, "30:2", True)
    assert proof["records_read"] == proof["records_of_partitions"] == told["batch"]["records"]
    assert [read["source"] for read in told["reads"]] == ["2013-01-31.csv", f"2013-01-31{TAG}.csv"]
    for txid in (RESTATED, RESTATE):
        (again,) = site.told(f"{T}/batches/{txid}".format("flights"))["restates"]
        assert (again["txid"], again["position"], again["requested_by"]) == (RESTATE, RESTATED, "ana")
    failing = site.told(f"{T}/batches/{FAILING}".format("flights"))
    assert len(failing["attempts"]) == 2
    assert (failing["proof"]["records_read"], failing["proof"]["equal"]) == (None, None)
    away = site.told(f"{T}/batches/4".format("clicks"))
    assert away["reads"][0]["status"] == "unreadable"
    assert TAG in away["reads"][0]["reason"]


def test_the_batches_of_a_run_are_found_by_a_hostile_name(site: Site) -> None:
    hostile = quote(quote(HOSTILE_RUN, safe=""), safe="")  # the client of these tests decodes a path twice
    told = site.told(f"{T}/runs/{hostile}".format("flights"))
    assert [batch["txid"] for batch in told["batches"]] == [WAITING]
    assert told["batches"][0]["run_id"] == HOSTILE_RUN
    assert (
        site.told(f"{T}/runs/scheduled__2013-01-02T05%3A00%3A00%2B00%3A00".format("flights"))["batches"][0]["txid"] == 1
    )
    assert site.told(f"{T}/runs/nosuch".format("flights")) == {"batches": []}


def test_a_month_has_its_hole(site: Site) -> None:
    told = site.told(f"{T}/intervals?from=2013-01-01T05:00:00Z&to=2013-02-01T05:00:00Z".format("flights"))
    assert (len(told["intervals"]), told["zone"]) == (30, "America/New_York")
    assert [(gap["start"], gap["txid"]) for gap in told["gaps"]] == [("2013-01-13T05:00:00Z", None)]
    second = told["intervals"][1]
    assert (second["txid"], second["counts"]) == (RESTATED, RESTATE)
    assert told["span"]["first"] == "2013-01-01T05:00:00Z"
    newest = site.told(f"{T}/intervals".format("flights"))
    assert [each["counts"] for each in newest["intervals"][-2:]] == [None, None]


def test_partitions_are_paged_by_name_with_what_is_not_read(site: Site) -> None:
    told = site.told(f"{T}/partitions?first=1&last=4".format("clicks"))
    rows = {row["partition"]: row for row in told["rows"]}
    assert rows["part-00002.txt"]["unreadable_since_txid"] == 4
    assert {f"a/{TAG}.txt", f"{RTL}txt.cod"} <= {*rows}
    looks = {(cell["partition"], cell["txid"]): cell["status"] for cell in told["cells"]}
    assert looks["part-00002.txt", 4] == "unreadable"
    assert looks["part-00002.txt", 3] == "read"
    found = site.told(f"{T}/partitions?first=1&last=4&search=0003".format("clicks"))
    assert [row["partition"] for row in found["rows"]] == ["part-00003.txt"]
    later = site.told(f"{T}/partitions?first=1&last=4&after={quote('clicks/part-00004.txt')}".format("clicks"))
    assert [row["partition"] for row in later["rows"]] == ["part-00005.txt", f"{RTL}txt.cod"]


def test_keys_are_chosen_by_their_begins(site: Site) -> None:
    keys = f"{T}/states/flights/keys".format("flights")
    assert site.told(keys)["rows"] == [[TAG, f"{RTL}KFJ"], ["B6", "JFK"], ["UA", "EWR"]]
    assert site.told(f"{keys}?starts=B")["rows"] == [["B6", "JFK"]]
    assert site.told(f"{keys}?key=UA&starts=E")["rows"] == [["UA", "EWR"]]
    assert site.told(f"{keys}?limit=1")["more"] is True
    assert site.told(f"{keys}?starts=%25")["rows"] == []


def test_why_tells_the_versions_of_a_value_digit_by_digit(site: Site) -> None:
    told = site.told(f"{T}/states/flights/why?{KEY}".format("flights"))
    assert [column["name"] for column in told["columns"]] == ["flights", "dep_delay_mean", "dep_delay_max"]
    assert (told["equal"], told["txid"], told["value"][0]) == (True, RESTATE, str(8 * 29 + 125))
    first, again = (each for each in told["versions"] if each["position"] == RESTATED)
    assert (first["counts"], first["replaced_by"], again["counts"], again["requested_by"]) == (
        False,
        RESTATE,
        True,
        "ana",
    )
    assert again["reads"]
    united = site.told(f"{T}/states/flights/why?key=UA&key=EWR".format("flights"))
    assert united["versions"][0]["values"][1].startswith(str(MUCH))
    total = site.told(f"{T}/states/{quote(TAG, safe='')}/why?key={quote(TAG)}".format("flights"))
    assert total["versions"][0]["values"] == [str(DIGITS)]
    assert total["value"] == [str(DIGITS + 29)]


def test_as_of_is_what_a_value_was(site: Site) -> None:
    asked = f"{T}/states/flights/as-of?{KEY}".format("flights")
    assert site.told(f"{asked}&txid=1")["row"][0] == "8"
    assert site.told(f"{asked}&txid=0")["row"] is None
    assert (site.told(f"{asked}&txid=1")["first"], site.told(f"{asked}&txid=1")["last"]) == (0, 31)
    now, then = (site.told(f"{asked}&txid={txid}")["row"][0] for txid in (31, 30))
    assert (int(now) - int(then), site.told(f"{asked}&txid=2&corrected=true")["row"][0]) == (125 - 8, str(8 + 125))
    absent = f"{T}/states/flights/as-of?txid=3&key=none&key={quote(TAG)}".format("flights")
    assert site.told(absent)["row"] is None
    for txid in (32, 10**6):
        answer = site.get(f"{asked}&txid={txid}")
        assert (answer.status_code, "newest committed one is 31" in answer.text) == (410, True)


def test_the_txid_that_was_committed_last_before_a_time_is_found(site: Site) -> None:
    asked = f"{T}/committed?before={{1}}"
    committed = site.told(f"{T}/batches?status=committed".format("flights"))["batches"]
    assert len(committed) == RESTATE
    for each in committed:
        told = site.told(asked.format("flights", each["committed_at"]))
        assert told == {"txid": each["txid"] - 1 or None}, each
    later = "2999-01-01T00:00:00%2B05:00"
    assert [site.told(asked.format(name, later))["txid"] for name in TOPOLOGIES] == [4, RESTATE, None]
    for wrong in ("", "yesterday", "2013-01-05", "9" * 400):
        assert site.get(asked.format("flights", wrong)).status_code == 422, wrong


def test_a_restate_is_told_with_the_interval_that_it_counts_again(site: Site) -> None:
    one = site.told(f"{T}/batches/{RESTATE}".format("flights"))["batch"]
    (listed,) = (each for each in site.told(f"{T}/batches".format("flights"))["batches"] if each["txid"] == RESTATE)
    (of_run,) = site.told(f"{T}/runs/{quote(one['run_id'])}".format("flights"))["batches"]
    assert {(each["start"], each["end"]) for each in (one, listed, of_run)} == {
        ("2013-01-02T05:00:00Z", "2013-01-03T05:00:00Z")
    }


def test_what_a_batch_changed_is_told_before_and_after(site: Site) -> None:
    told = site.told(f"{T}/batches/{RESTATE}/changes?state=flights".format("flights"))
    (row,) = [row for row in told["rows"] if row["key"] == ["B6", "JFK"]]
    assert int(row["after"][0]) - int(row["before"][0]) == 117
    first = site.told(f"{T}/batches/1/changes?state=flights".format("flights"))
    assert {row["before"] is None for row in first["rows"]} == {True}
    between = site.told(f"{T}/states/flights/changes?from=0&to=31&limit=1".format("flights"))
    assert (len(between["rows"]), between["more"]) == (1, True)
    backwards = site.told(f"{T}/states/flights/changes?from=31&to=0".format("flights"))
    assert {row["after"] is None for row in backwards["rows"]} == {True}
    assert site.get(f"{T}/batches/{FAILING}/changes?state=flights".format("flights")).status_code == 410


@pytest.mark.parametrize("told", ["false", "False", "maybe"])
def test_no_number_is_shown_where_that_is_set(site: Site, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__TXBATCH__PAGES_SHOW_VALUES", told)
    assert site.told(T.format("flights"))["show_values"] is False
    for path in routes("flights"):
        hidden = "/states/" in path or path.endswith("/changes")
        assert site.get(path).status_code == (403 if hidden else 200), path


# ---- what is refused


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_leads_elsewhere(site: Site, name: str) -> None:
    for role in ("admin", "one"):
        answer = site.get(f"/api/topologies/{name}/batches", role)
        assert answer.status_code in (403, 404, 422), answer.text
        assert "batches" not in answer.json()


@pytest.mark.parametrize("txid", TXIDS)
def test_no_txid_is_a_fault(site: Site, txid: str) -> None:
    state = f"{T}/states/flights".format("flights")
    for path in (
        f"{T}/batches/{txid}",
        f"{T}/batches?before={txid}",
        f"{T}/batches/{txid}/changes?state=flights",
        f"{T}/partitions?first={txid}&last={txid}",
    ):
        answer = site.get(path.format("flights"))
        assert answer.status_code == 422, (path, answer.status_code, answer.text)
    for path in (f"{state}/as-of?txid={txid}&{KEY}", f"{state}/changes?from={txid}&to={txid}"):
        assert site.get(path).status_code == (200 if txid == "0" else 422), path


def test_the_greatest_txid_is_one_that_there_is_not(site: Site) -> None:
    assert site.get(f"{T}/batches/{2**63 - 1}".format("flights")).status_code == 404
    assert len(site.told(f"{T}/batches?before={2**63 - 1}&limit=200".format("flights"))["batches"]) == 34
    assert site.get(f"{T}/states/flights/as-of?txid={2**63 - 1}&{KEY}".format("flights")).status_code == 410


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("{T}/batches?limit=0", 422),
        ("{T}/batches?limit=201", 422),
        ("{T}/batches?limit=-1", 422),
        ("{T}/batches?status=done", 422),
        ("{T}/batches?failed=maybe", 422),
        ("{T}/intervals?from=2013-01-01T00:00:00Z", 422),
        ("{T}/intervals?from=2013-01-01&to=2013-01-02", 422),
        ("{T}/intervals?from=2013-01-02T00:00:00Z&to=2013-01-01T00:00:00Z", 422),
        ("{T}/intervals?from=2013-01-01T00:00:00Z&to=2015-01-01T00:00:00Z", 422),
        ("{T}/intervals?from=0001-01-01T00:00:00%2B23:59&to=0001-01-02T00:00:00Z", 422),
        ("{T}/intervals?from=x&to=y", 422),
        ("{T}/partitions", 422),
        ("{T}/partitions?first=4&last=1", 422),
        ("{T}/partitions?first=1&last=201", 422),
        ("{T}/partitions?first=1&last=2&after=x", 422),
        ("{T}/states/nosuch/why?key=a", 404),
        ("{T}/states/clicks/why?key=a", 404),
        ("{T}/states/flights/why", 422),
        ("{T}/states/flights/why?key=a", 422),
        ("{T}/states/flights/why?key=a&key=b&key=c", 422),
        ("{T}/states/flights/why?key=nosuch&key=x", 404),
        ("{T}/states/flights/why?key=%00&key=x", 422),
        ("{T}/states/flights/why?" + "key=x&" * 65, 422),
        ("{T}/states/flights/keys?limit=51", 422),
        ("{T}/states/flights/as-of?key=a&key=b", 422),
        ("{T}/states/flights/changes?from=1", 422),
        ("{T}/states/flights/changes?from=1&to=2&limit=201", 422),
        ("/api/topologies/nosuch", 404),
        ("/api/topologies/nosuch/batches", 404),
        ("/api/topologies/nosuch/states/flights/why?key=a&key=b", 404),
        ("{T}/batches/99", 404),
        ("{T}/runs/%00", 422),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(site: Site, path: str, status: int) -> None:
    answer = site.get(path.replace("{T}", T.format("flights")))
    assert answer.status_code == status, answer.text
    assert isinstance(answer.json()["detail"], str)


def test_long_texts_are_texts(site: Site) -> None:
    long = "x" * 30_000
    for path in (f"/states/flights/keys?starts={long}", f"/runs/{long}", f"/partitions?first=1&last=2&search={long}"):
        assert site.get(T.format("flights") + path).status_code == 200
    assert site.get(f"{T}/states/flights/why?key={long}&key={long}".format("flights")).status_code == 404


ANYTHING = st.text(max_size=40) | st.sampled_from([*TXIDS, RTL, TAG, "\0", "\ud800", "%", "~", "a" * 3_000])
# Those that a browser or a proxy sends, and those by which others are led astray.
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *("accept", "accept-encoding", "content-type", "cookie", "forwarded", "if-none-match", "origin", "range"),
            *("x-forwarded-host", "x-forwarded-prefix", "x-http-method-override", "x-original-url"),
        ]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60),
    max_size=3,
)
VALUES = ANYTHING | st.sampled_from(["1", "3", "true", "B6", "JFK", "flights", "2013-01-01T05:00:00Z"])
# What stands for a part of a path: most often a name that leads on.
PARTS = st.sampled_from(["flights", "flights", "flights", "1", "31", "TX301"]) | ANYTHING


@pytest.fixture(scope="module")
def described(site: Site) -> dict[str, list[str]]:
    """The routes of the OpenAPI text, each with the names of its parameters; a query may also name another DAG."""
    paths = site.told("/api/openapi.json")["paths"]
    return {path: [each["name"] for each in of["get"].get("parameters", [])] for path, of in sorted(paths.items())}


def test_the_description_has_each_route(described: dict[str, list[str]]) -> None:
    assert {*ANSWERED} == {blank(path) for path in described}


@given(data=st.data())
@few
def test_no_request_is_a_fault(site: Site, described: dict[str, list[str]], data: st.DataObject) -> None:
    """Every route of the OpenAPI text, asked for anything: an answer of its kind or a reason, never an error of the server."""

    def safe(text: str) -> str:
        return quote(text, safe="", errors="surrogatepass")

    path = data.draw(st.sampled_from(list(described)))
    parts = {name: safe(data.draw(PARTS, name)) for name in re.findall(r"\{(\w+)\}", path)}
    names = st.sampled_from([*described[path], "dag_id", "key"])
    query = "&".join(
        f"{name}={safe(value)}" for name, value in data.draw(st.lists(st.tuples(names, VALUES), max_size=5))
    )
    headers = data.draw(HEADERS) | {"Authorization": f"Bearer {site.tokens['admin']}"}
    answer = site.client.get(f"{path.format(**parts)}?{query}", headers=headers)
    assert answer.status_code in (200, 404, 410, 422), (answer.request.url, answer.text)
    assert answer.headers["content-type"] == "application/json"
    if answer.status_code != 200:
        assert not LEAKS.search(answer.json()["detail"]), answer.text
    elif not answer.history:  # an empty part leads on to another route
        msgspec.convert(answer.json(), ANSWERED[blank(path)], strict=True)


# ---- the examples by which the page is written


# A plan is no answer of a route: a run leaves it.
ANSWERS = sorted(file for file in PAYLOADS.glob("*.json") if file.stem != "plan")


@pytest.mark.parametrize("file", ANSWERS, ids=lambda file: file.stem)
def test_the_examples_are_answers(file: Path) -> None:
    kind = max((name for name in EXAMPLES if file.stem.startswith(name)), key=len)
    example = json.loads(file.read_text())
    assert msgspec.to_builtins(msgspec.convert(example, EXAMPLES[kind], strict=True)) == example


def test_figures_of_answers_are_texts_where_they_may_be_large(site: Site) -> None:
    batch = site.told(f"{T}/batches/1".format("clicks"))
    assert isinstance(batch["batch"]["records"], str)
    why: dict[str, Any] = site.told(f"{T}/states/clicks/why?key=the".format("clicks"))
    assert why["versions"][0]["values"] == [str(MUCH)]
    assert why["value"] == [str(MUCH + 9)]
