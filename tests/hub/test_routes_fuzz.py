"""Requests made of noise to the routes of accounts, results and discovery: each gets an answer, none breaks the hub.

No answer is an HTTP 500, has a traceback or is empty, and requests take bounded time: the client waits no longer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hub_people import PeopleHub, people_hub
from hubs import published
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from results_hub import locks_release, run_params, submission
from starlette.routing import BaseRoute, Route
from suite_selection import selected_suites

from ludus.hub.core.rates import RateSettings
from ludus.hub.settings.people import PeopleSettings

pytestmark = pytest.mark.timeout(600)
THOROUGH = "hub" in selected_suites()
MANY = 10**9
FREE = RateSettings(**dict.fromkeys(RateSettings.model_fields, MANY))
PACKAGE = "alice/noise"

TEXT = st.text(max_size=30) | st.sampled_from(
    ["alice", "noise", "1.0.0", "latest", "..", "%00", "\x00", "\ud800", "😀" * 20]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PARTS = ("account", "login", "register", "invitations", "runs", "results", "board", "/v0.1", "/.well-known", "audit",
         "/owners", "/readers", "/access", "server-card", "server.json")  # fmt: skip
VALID: dict[str, dict[str, Any]] = {
    "login": {"account": "alice", "password": "a wrong password", "name": "x", "scopes": ["read"]},
    "register": {"name": "dora", "password": "correct horse battery", "invitation": "x"},
    "device": {"name": "x", "scopes": ["read"], "days": 3}, "token": {"device_code": "x"},
    "tokens": {"name": "x", "scopes": ["read"], "packages": [], "days": 3},
    "results": submission("0" * 64, 1.0, 0.0),
    "runs": run_params(),
    "remove": {"reason": "x"}, "rescore": {"reason": "x"}, "end": {"input_tokens": 1}, "access": {"private": False},
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A route with one of its methods."""

    method: str
    path: str

    @property
    def valid(self) -> dict[str, Any]:
        """A body that the route may take."""
        return VALID.get(self.path.rpartition("/")[2], {})


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    """A hub with a package and a reported run, in which no rate refuses anything."""
    with people_hub(tmp_path_factory.mktemp("noise"), None, people=PeopleSettings(rates=FREE)) as hub:
        published(hub.of("alice"), locks_release(PACKAGE))
        yield hub


def targets(routes: list[BaseRoute]) -> Iterator[Target]:
    for route in routes:
        inner = getattr(route, "original_router", None) or getattr(route, "router", None)
        if isinstance(route, Route):
            if any(part in route.path for part in PARTS):
                yield from (Target(method, route.path) for method in sorted(route.methods or ()))
        elif inner is not None:
            yield from targets(inner.routes)


def filled(path: str, words: list[str]) -> str:
    """The path of a route with these words in place of its parameters."""
    left = iter(words)
    usual = {"owner": "alice", "name": "noise", "version": "1.0.0"}

    def word(match: re.Match[str]) -> str:
        given = next(left, "")
        return quote(given, safe="", errors="replace") or usual.get(match[1], "1")

    return re.sub(r"{(\w+)(?::\w+)?}", word, path)


def check(target: Target, answer: httpx.Response) -> None:
    what = f"{target.method} {answer.request.url}: {answer.status_code} {answer.text[:300]}"
    assert answer.status_code < 500 or answer.status_code in (501, 503), what
    assert "Traceback" not in answer.text, what
    if answer.status_code >= 400 and target.method != "HEAD":
        assert answer.content, what
    if target.path.startswith("/api/") and answer.status_code >= 400 and target.method != "HEAD":
        assert answer.json()["error"]["message"], what


@pytest.mark.suite("hub", sample=True)
@settings(max_examples=1000 if THOROUGH else 60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_requests_of_any_shape_get_an_answer(data: st.DataObject, people: PeopleHub) -> None:
    known = sorted(set(targets(people.app.routes)), key=lambda one: (one.path, one.method))
    assert len(known) > 40, "the walk reaches the routes"
    target = data.draw(st.sampled_from(known), "route")
    words = data.draw(st.lists(st.just("") | TEXT, max_size=4), "words")
    query = data.draw(st.dictionaries(st.sampled_from(["page", "environment", "split", "level", "cursor", "limit",
                                                       "search", "version", "updated_since", "q", "x"]),
                                      TEXT | st.integers().map(str), max_size=3), "query")  # fmt: skip
    changes = data.draw(
        st.dictionaries(st.sampled_from(sorted(target.valid) or ["x"]) | TEXT, VALUES, max_size=3), "changes"
    )
    sort = data.draw(st.sampled_from(["json", "json", "form", "bytes", "nothing"]), "body")
    who = data.draw(st.sampled_from(["alice", "root", ""]), "who")
    headers = {"accept": data.draw(st.sampled_from(["text/html", "application/json", "*/*", ""]), "accept")}
    if who and target.path not in ("/logout", "/account/delete") and target.method != "DELETE":
        headers["authorization"] = f"Bearer {token_of(people, who)}"
    body: dict[str, Any] = {}
    if sort == "json":
        content = json.dumps({**target.valid, **changes}).encode("utf-8", "surrogatepass")
        body = {"content": content, "headers": {**headers, "content-type": "application/json"}}
    elif sort == "form":
        body = {"data": {key.encode("utf-8", "replace").decode(): "v" for key in changes}, "headers": headers}
    elif sort == "bytes":
        body = {"content": data.draw(st.binary(max_size=100), "bytes"), "headers": headers}
    else:
        body = {"headers": headers}
    query = {key: one.encode("utf-8", "replace").decode() for key, one in query.items()}
    people.client.cookies.clear()
    answer = people.client.request(target.method, filled(target.path, words), params=query, **body)
    check(target, answer)


_TOKENS: dict[tuple[int, str], str] = {}


def token_of(people: PeopleHub, who: str) -> str:
    key = (id(people), who)
    if key not in _TOKENS:
        _TOKENS[key] = people.token(who)
    return _TOKENS[key]


@pytest.mark.suite("hub", sample=True)
@settings(max_examples=300 if THOROUGH else 20, suppress_health_check=[HealthCheck.too_slow])
@given(
    changes=st.dictionaries(TEXT, VALUES, max_size=2), field=st.sampled_from(sorted(submission("0" * 64, 1.0))),
    value=VALUES,
)  # fmt: skip
def test_submissions_of_any_shape_are_kept_or_refused(
    changes: dict[str, Any], field: str, value: Any, people: PeopleHub
) -> None:
    client, mine = people.client, {"authorization": f"Bearer {token_of(people, 'bob')}"}
    where = f"/api/v1/environments/{PACKAGE}/versions/1.0.0"
    upload = {**submission(client.get(where).json()["sha256"], 1.0, 0.0), **changes, field: value}
    content = json.dumps(upload).encode("utf-8", "surrogatepass")
    answer = client.post(f"{where}/results", content=content, headers=mine)
    assert answer.status_code in (200, 201, 400, 404, 409, 413, 429), answer.text[:500]
    if answer.status_code < 300:
        key = answer.json()["key"]
        for path in (f"/runs/{key}", f"/api/v1/runs/{key}/rows", f"/{PACKAGE}"):
            assert client.get(path, headers={"accept": "text/html"}).status_code == 200, path


def test_an_endpoint_that_cannot_be_reached_is_said_without_its_address(people: PeopleHub) -> None:
    mine = {"authorization": f"Bearer {token_of(people, 'alice')}"}
    where = f"/api/v1/environments/{PACKAGE}/versions/1.0.0/runs"
    answer = people.client.post(where, json=run_params(), headers=mine)
    assert (answer.status_code, answer.json()["error"]["data"]["kind"]) == (503, "HubUnavailable")
    assert "/e/" not in answer.text
