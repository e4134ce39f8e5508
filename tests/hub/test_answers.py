"""What all answers of a hub keep to: no cache stores what is personal, and times are in UTC in every database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from hub_people import PASSWORD, PeopleHub, people_hub, publish_private
from hubs import new_name, published, release
from postgres_server import PostgresServer
from starlette.routing import Route


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    with people_hub(tmp_path_factory.mktemp("answers"), None) as found:
        yield found


def test_no_cache_keeps_a_personal_answer(people: PeopleHub) -> None:
    name = f"alice/{new_name()}"
    one = release(name)
    publish_private(people.of("alice"), one)
    api, page = f"/api/v1/environments/{name}", f"/{name}"
    paths = (
        api, f"{api}/versions", f"{api}/readers", f"/files/{one.sha256}/{one.filename}", "/api/v1/environments?q=coin",
        f"/index/alice/simple/{name.replace('/', '-')}/", "/api/v1/account", "/api/v1/account/tokens",
        "/api/v1/account/export", "/api/v1/account/audit", "/account", "/account/export", "/account/tokens", "/",
        page, f"{page}/badge.svg", f"{page}/versions/1.0.0/files", f"{page}/versions/1.0.0/card", "/nope/nope",
        "/api/v1/environments/nope/nope", "/api/v1/runs/nope", "/rollouts",
    )  # fmt: skip
    for client in (people.of("alice"), people.browser("alice"), people.as_(None)):
        for path in paths:
            answer = client.get(path)
            assert "no-store" in answer.headers.get("cache-control", ""), (path, answer.status_code)
    created = people.of("alice").post("/api/v1/account/tokens", json={"name": "ci", "scopes": ["read"], "days": 1})
    assert "token" in created.json()
    assert created.headers["cache-control"] == "no-store"


def test_no_form_of_the_site_is_taken_from_another_page(people: PeopleHub) -> None:
    name = new_name()
    publish_private(people.of("alice"), release(f"alice/{name}"))
    alice, key = people.browser("alice"), form_key(people.browser("bob"))
    values = {
        "owner": "alice", "name": name, "token": "1", "identity": "1", "organization": "acme", "file": "f" * 16,
        "play": "p" * 24, "run": "r" * 22,
    }  # fmt: skip
    routes = [
        one for one in people.app.router.routes
        if isinstance(one, Route) and "POST" in (one.methods or ()) and "ludus.hub.site" in one.endpoint.__module__
    ]  # fmt: skip
    routes = [one for one in routes if "openid" not in one.endpoint.__module__]  # this hub has no provider
    assert len(routes) > 15
    assert len(key) > 30
    before = state(people, name)
    for route in routes:
        path = re.sub(r"{(\w+)(?::\w+)?}", lambda match: values[match[1]], route.path)
        for fields in ({}, {"form_key": ""}, {"form_key": key}, {"form_key": "é😀"}):
            answer = alice.post(path, data={**fields, "private": "no", "name": "alice", "password": PASSWORD})
            assert answer.status_code == 403, (path, fields, answer.status_code)
            assert "out of date" in answer.text
        assert alice.post(path, json={"private": "no"}).status_code == 403
    assert state(people, name) == before
    assert alice.get("/account").status_code == 200, "nothing has ended the session"


def form_key(browser: httpx.Client) -> str:
    return browser.get("/login").text.partition('name="form_key" value="')[2].partition('"')[0]


def state(people: PeopleHub, name: str) -> tuple[object, ...]:
    """What the forms of the site could change."""
    alice = people.of("alice")
    tokens = [one["name"] for one in alice.get("/api/v1/account/tokens").json()["tokens"] if one["name"] != "test"]
    return alice.get(f"/api/v1/environments/alice/{name}").json(), tokens, alice.get("/api/v1/organizations").json()


@pytest.mark.parametrize("page", [2, 3, 99_999])
def test_a_page_after_the_last_one_leads_to_the_last_one(people: PeopleHub, page: int) -> None:
    for path in ("/", "/results/log"):
        answer = people.browser().get(f"{path}?q=coin&tag=a&tag=b&page={page}")
        assert answer.status_code == 303
        assert answer.headers["location"] == f"{path}?q=coin&tag=a&tag=b&page=1"
        assert people.browser().get(answer.headers["location"]).status_code == 200


def test_a_person_who_signs_in_comes_back_to_the_whole_address(people: PeopleHub) -> None:
    browser = people.browser()
    wanted = "/rollouts/compare?a=ffffffffffffffff%3A1&b=ffffffffffffffff%3A2"
    asked = browser.get(wanted)
    assert asked.status_code == 303
    form = browser.get(asked.headers["location"])
    key = form_key(browser)
    following = form.text.partition('name="next" value="')[2].partition('"')[0].replace("&amp;", "&")
    fields = {"form_key": key, "name": "alice", "password": PASSWORD, "next": following}
    assert browser.post("/login", data=fields).headers["location"] == wanted
    long = browser.get(f"/rollouts/compare?a={'f' * 900}%3A1&b=x").headers.get("location", "")
    assert browser.get(long).status_code == 200, "an address that is too long is cut to its path"


def test_times_are_in_utc_whatever_zone_the_database_is_set_to(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.new_url()
    postgres.sql(f"ALTER DATABASE {url.rpartition('/')[2].partition('?')[0]} SET timezone TO 'Asia/Kolkata'")
    name = f"alice/{new_name()}"
    with people_hub(tmp_path, url) as people:
        published(people.of("alice"), release(name))
        about = people.as_(None)
        found = [
            about.get(f"/api/v1/environments/{name}/versions/1.0.0").json()["uploadedAt"],
            about.get("/.well-known/ai-catalog.json").json()["entries"][0]["updatedAt"],
            about.get("/v0.1/servers").json()["servers"][0]["_meta"]["io.modelcontextprotocol.registry/official"][
                "publishedAt"
            ],
            index_of(about, name)["upload-time"],
            people.of("alice").get("/api/v1/account/audit").json()["events"][0]["at"],
        ]
        audit = people.browser("alice").get("/account/audit").text
    now = datetime.now(UTC)
    for moment in found:
        assert moment.endswith("Z"), moment
        assert abs(datetime.fromisoformat(moment) - now) < timedelta(minutes=30), moment
    shown = datetime.fromisoformat(audit.partition("<time>")[2][:16]).replace(tzinfo=UTC)
    assert abs(shown - now) < timedelta(minutes=30)


def index_of(client: httpx.Client, name: str) -> dict[str, str]:
    kind = {"accept": "application/vnd.pypi.simple.v1+json"}
    answer = client.get(f"/index/simple/{name.replace('/', '-')}/", headers=kind)
    first: dict[str, str] = answer.json()["files"][0]
    return first
