"""What all answers of a hub keep to: no cache stores what is personal, and times are in UTC in every database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psycopg
import pytest
from hub_people import PASSWORD, PeopleHub, people_hub, publish_private
from hubs import new_name, published, release
from postgres_server import PostgresServer


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


@pytest.mark.parametrize("page", [2, 3, 99_999])
def test_a_page_after_the_last_one_leads_to_the_last_one(people: PeopleHub, page: int) -> None:
    for path in ("/", "/training", "/results/log"):
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
    key = form.text.partition('name="form_key" value="')[2].partition('"')[0]
    following = form.text.partition('name="next" value="')[2].partition('"')[0].replace("&amp;", "&")
    fields = {"form_key": key, "name": "alice", "password": PASSWORD, "next": following}
    assert browser.post("/login", data=fields).headers["location"] == wanted
    long = browser.get(f"/rollouts/compare?a={'f' * 900}%3A1&b=x").headers.get("location", "")
    assert browser.get(long).status_code == 200, "an address that is too long is cut to its path"


def test_times_are_in_utc_whatever_zone_the_database_is_set_to(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.new_url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET timezone TO 'Asia/Kolkata'")
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
