"""The pages of accounts in a browser: registering, signing in, tokens, sessions, the audit log, and who reads what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from hub_people import PASSWORD, PeopleHub, people_hub, publish_private
from hub_sites import Page, as_page
from hubs import new_name, published, release

from ludus.hub.core.rates import RateSettings
from ludus.hub.people import sessions
from ludus.hub.settings.people import PeopleSettings
from ludus.registry.types.people import TOKEN_PREFIX, HubScope

NEW = "another horse battery"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    """A hub where everyone may register."""
    rates = RateSettings(registrations_hour=1000, logins_of_address=1000)
    settings = PeopleSettings(registration="open", rates=rates)
    with people_hub(tmp_path_factory.mktemp("site"), None, people=settings) as hub:
        yield hub


@pytest.fixture
def browser(people: PeopleHub) -> httpx.Client:
    """A browser of a stranger, without cookies."""
    client = people.as_(None)
    client.headers["accept"] = "text/html"
    return client


def send(browser: httpx.Client, where: str, page: str = "/login", **fields: str | list[str]) -> httpx.Response:
    """Send a form of a page."""
    form_key = as_page(browser.get(page)).hidden("form_key")
    return browser.post(where, data={"form_key": form_key, **fields})


def sign_in(browser: httpx.Client, name: str, password: str = PASSWORD) -> httpx.Response:
    return send(browser, "/login", name=name, password=password, next="/account")


def new_person(browser: httpx.Client, name: str = "") -> str:
    name = name or new_name("site")
    answer = send(browser, "/register", "/register", name=name, password=PASSWORD, again=PASSWORD)
    assert answer.headers["location"] == "/account", answer.text
    return name


def test_a_person_registers_makes_a_token_and_signs_out(people: PeopleHub, browser: httpx.Client) -> None:
    name = new_person(browser)
    assert name in as_page(browser.get("/account")).text
    answer = send(browser, "/account/tokens", "/account/tokens", name="ci", scope=["read", "publish"], days="30")
    shown = as_page(answer, 201)
    token = re.findall(rf"{TOKEN_PREFIX}[0-9a-f]{{72}}", shown.text)[0]
    assert published(people.as_(token), release(f"{name}/coin"))["uploadedBy"] == name
    listed = as_page(browser.get("/account/tokens"))
    assert token not in listed.text
    revoke = next(one["action"] for one in listed.all("form") if one.get("action", "").endswith("/revoke"))
    assert send(browser, revoke, "/account/tokens").status_code == 303
    assert people.as_(token).get("/api/v1/environments").status_code == 401
    assert "token revoked" in as_page(browser.get("/account/audit")).text
    send(browser, "/logout", "/account")
    assert browser.get("/account").headers["location"] == "/login?next=%2Faccount"


@pytest.mark.parametrize(
    "fields",
    [
        {"again": "something else"}, {"password": "short", "again": "short"}, {"name": "alice"}, {"name": "al1ce"},
        {"name": "<b>"},
    ],
)  # fmt: skip
def test_a_registration_that_cannot_be_is_shown_again_with_the_reason(
    browser: httpx.Client, fields: dict[str, str]
) -> None:
    given = {"name": new_name("no"), "password": PASSWORD, "again": PASSWORD, **fields}
    answer = send(browser, "/register", "/register", **given)
    assert answer.status_code in (400, 422)
    assert any(one.get("role") == "alert" for one in as_page(answer, answer.status_code).all("p"))
    assert PASSWORD not in answer.text


def test_a_wrong_password_and_a_name_without_an_account_get_the_same_page(browser: httpx.Client) -> None:
    wrong, unknown = sign_in(browser, "alice", "not the password"), sign_in(browser, "unknown", "not the password")
    assert (wrong.status_code, wrong.text) == (unknown.status_code, unknown.text)
    assert wrong.status_code == 401


def test_a_sign_in_gets_a_new_cookie_that_scripts_and_other_sites_cannot_use(
    people: PeopleHub, browser: httpx.Client
) -> None:
    planted = "p" * 43
    browser.cookies.set("ludus_visitor", planted)
    answer = sign_in(browser, "alice")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert planted not in cookie
    attacker = people.as_(None)
    attacker.cookies.set("ludus_visitor", planted)
    attacker.headers["accept"] = "text/html"
    assert attacker.get("/account").status_code == 303, "the planted cookie names no session"


def test_a_cookie_is_sent_over_https_only_where_the_hub_is_reached_so(people: PeopleHub) -> None:
    browser = people.as_(None)
    browser.base_url = "https://127.0.0.1"
    assert "Secure" in browser.get("/login").headers["set-cookie"]
    browser.base_url = "http://127.0.0.1"
    browser.cookies.clear()
    assert "Secure" not in browser.get("/login").headers["set-cookie"]


FORMS = (
    "/login", "/logout", "/register", "/account/password", "/account/sessions/end", "/account/delete",
    "/account/tokens", "/account/tokens/1/revoke", "/alice/coin/access",
)  # fmt: skip


@pytest.mark.parametrize("where", FORMS)
def test_a_form_without_the_key_of_the_browser_is_refused(people: PeopleHub, where: str) -> None:
    browser, other = people.browser("alice"), people.browser("bob")
    theirs = as_page(other.get("/account")).hidden("form_key")
    for data in (
        {},
        {"form_key": ""},
        {"form_key": theirs},
        {"form_key": "\udc80".encode("utf-8", "replace").decode()},
    ):
        assert browser.post(where, data={**data, "name": "alice", "password": PASSWORD}).status_code == 403
    assert browser.get("/account").status_code == 200, "nothing happened"


def test_a_cookie_alone_changes_nothing_through_the_api(people: PeopleHub) -> None:
    browser = people.browser("alice")
    assert browser.get("/api/v1/account").status_code == 401
    answer = browser.put("/api/v1/environments/alice/coin/access", json={"private": True})
    assert answer.status_code == 401


def test_a_new_password_signs_out_the_other_browsers(people: PeopleHub, browser: httpx.Client) -> None:
    name = new_person(browser)
    other = people.as_(None)
    other.headers["accept"] = "text/html"
    assert sign_in(other, name).status_code == 303
    send(browser, "/account/password", "/account", old=PASSWORD, new=NEW, again=NEW)
    assert (browser.get("/account").status_code, other.get("/account").status_code) == (200, 303)
    assert sign_in(other, name).status_code == 401
    assert sign_in(other, name, NEW).status_code == 303
    assert send(browser, "/account/sessions/end", "/account").status_code == 303
    assert (browser.get("/account").status_code, other.get("/account").status_code) == (303, 303)


def test_a_session_that_was_not_used_for_long_has_ended(people: PeopleHub, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = people.browser("alice")
    assert browser.get("/account").status_code == 200
    monkeypatch.setattr(sessions, "IDLE", timedelta(seconds=-1))
    assert browser.get("/account").status_code == 303


def test_the_owner_makes_a_package_private_and_names_readers(people: PeopleHub) -> None:
    name = f"alice/{new_name()}"
    published(people.of("alice"), release(name))
    alice, bob, stranger = people.browser("alice"), people.browser("bob"), people.browser()
    where = f"/{name}/access"
    assert where in {one.get("href") for one in as_page(alice.get(f"/{name}")).all("a")}
    assert where not in {one.get("href") for one in as_page(bob.get(f"/{name}")).all("a")}
    assert send(alice, where, where, private="yes").status_code == 303
    assert "private" in as_page(alice.get(f"/{name}")).text
    assert [one.get(f"/{name}").status_code for one in (bob, stranger)] == [404, 404]
    assert send(alice, where, where, add="bob").status_code == 303
    assert [one.get(f"/{name}").status_code for one in (bob, stranger)] == [200, 404]
    assert bob.get(where).status_code == 403
    assert send(alice, where, where, add="No Name").status_code == 422
    assert send(alice, where, where, remove="bob").status_code == 303
    assert bob.get(f"/{name}").status_code == 404
    file = release(name)
    assert alice.get(f"/files/{file.sha256}/{file.filename}").status_code == 200


def test_a_person_exports_and_deletes_the_account(people: PeopleHub, browser: httpx.Client) -> None:
    name = new_person(browser)
    publish_private(people.of(name, [HubScope.PUBLISH]), release(f"{name}/coin"))
    exported = browser.get("/account/export")
    assert exported.headers["content-disposition"] == f'attachment; filename="{name}.json"'
    assert exported.json()["packages"][0]["id"] == f"{name}/coin"
    assert send(browser, "/account/delete", "/account", name="other", password=PASSWORD).status_code == 422
    assert send(browser, "/account/delete", "/account", name=name, password="wrong password").status_code == 422
    assert send(browser, "/account/delete", "/account", name=name, password=PASSWORD).headers["location"] == "/"
    assert browser.get("/account").status_code == 303
    assert sign_in(browser, name).status_code == 401


def test_the_log_of_the_hub_is_for_administrators(people: PeopleHub) -> None:
    assert people.browser("alice").get("/account/audit/all").status_code == 403
    assert "account created" in as_page(people.browser("root").get("/account/audit/all")).text


@pytest.mark.parametrize("path", ["/login", "/register", "/account", "/account/tokens", "/account/audit"])
def test_pages_of_accounts_are_small_and_label_their_fields(people: PeopleHub, path: str) -> None:
    page: Page = as_page((people.browser() if path in ("/login", "/register") else people.browser("alice")).get(path))
    labels = {one["for"] for one in page.all("label") if "for" in one}
    fields = [one for one in page.all("input") if one.get("type") not in ("hidden", "checkbox")]
    assert {one["id"] for one in fields} <= labels
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
