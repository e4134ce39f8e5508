"""Signing in through an OpenID provider: registering, linking, confirming, and accounts without a password."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_people import PASSWORD, publish_private
from hub_sites import as_page
from hubs import new_name, release
from openid_people import OpenIdHub, openid_hub, problem
from openid_provider import onward
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from ludus.hub.database.sign_in_tables import AccountIdentity, PendingSignIn
from ludus.hub.database.tables import Account
from ludus.hub.operation.backup import write_backup
from ludus.hub.operation.check import check_hub
from ludus.hub.operation.parts import open_parts
from ludus.hub.operation.restore import restore_backup
from ludus.hub.people.openid.sign_in import NO_ACCOUNT, proposed_name
from ludus.registry.types.people import TOKEN_PREFIX, HubScope

_numbers = itertools.count(1)


@pytest.fixture
def who() -> str:
    """A person at the provider."""
    return f"person-{next(_numbers)}"


def actions(hub: OpenIdHub, name: str) -> list[str]:
    return [event.action for event in hub.people.hub.people.audit.events(name)]


@pytest.mark.suite("hub", first=1)
def test_a_person_registers_with_the_name_that_the_provider_proposes_and_signs_in_again(
    hub: OpenIdHub, who: str
) -> None:
    name, browser = new_name("oid"), hub.browser()
    answer = hub.sign_in(browser, sub=who, preferred_username=f"{name.upper()}@example.org")
    assert onward(answer) == "/register/openid"
    assert browser.get("/account").status_code == 303, "nothing has begun yet"
    fields = {one["name"]: one.get("value") for one in as_page(browser.get("/register/openid")).all("input")}
    assert fields["name"] == name
    answer = hub.send(browser, "/register/openid", "/register/openid", name=name)
    assert answer.headers["location"] == "/account"
    assert name in as_page(browser.get("/account")).text
    again = hub.browser()
    assert onward(hub.sign_in(again, following=f"/?owner={name}", sub=who)) == f"/?owner={name}"
    assert name in as_page(again.get("/account")).text
    assert actions(hub, name) == ["signed in", "identity linked", "account created"]


@pytest.mark.suite("hub", first=2)
@pytest.mark.parametrize("name", ["alice", "al1ce", "root", "Bob", "login", "", "a b"])
def test_a_name_that_is_taken_or_no_name_registers_nothing(hub: OpenIdHub, who: str, name: str) -> None:
    browser = hub.browser()
    hub.sign_in(browser, sub=who, preferred_username="alice", email="alice@example.org", email_verified=True)
    answer = hub.send(browser, "/register/openid", "/register/openid", name=name)
    assert answer.status_code == 422
    problem(answer)
    assert browser.get("/account").status_code == 303
    assert hub.send(browser, "/register/openid", "/register/openid", name=new_name("oid")).status_code == 303


@pytest.mark.suite("hub", first=1)
def test_an_account_links_an_identity_signs_in_with_it_and_unlinks_it(hub: OpenIdHub, who: str) -> None:
    browser = hub.browser("alice")
    assert "wrong" in problem(hub.send(browser, "/account/identities", "/account", password="not the password"))
    address = onward(hub.send(browser, "/account/identities", "/account", password=PASSWORD))
    answer = hub.back(browser, address, sub=who, email="al@example.org", email_verified=True)
    assert onward(answer) == "/account"
    assert "al@example.org" in as_page(browser.get("/account")).text
    other = hub.browser()
    assert onward(hub.sign_in(other, sub=who)) == "/account"
    assert "alice" in as_page(other.get("/account")).text
    unlink = next(
        one["action"] for one in as_page(other.get("/account")).all("form") if one.get("action", "").endswith("/unlink")
    )
    assert hub.send(other, unlink, "/account", password=PASSWORD).status_code == 303
    assert onward(hub.sign_in(hub.browser(), sub=who)) == "/register/openid", "it is nobody's now"
    assert actions(hub, "alice")[:3] == ["identity unlinked", "signed in", "identity linked"]


def test_an_identity_belongs_to_one_account_at_most(hub: OpenIdHub, who: str) -> None:
    owner = new_name("oid")
    hub.register(owner, sub=who)
    browser = hub.browser("bob")
    address = onward(hub.send(browser, "/account/identities", "/account", password=PASSWORD))
    assert "linked to an account already" in problem(hub.back(browser, address, sub=who))
    assert "sign-in refused" in actions(hub, "bob")


def test_an_account_without_a_password_confirms_at_the_provider_and_sets_one(hub: OpenIdHub, who: str) -> None:
    name = new_name("oid")
    browser = hub.register(name, sub=who)
    change = {"old": "", "new": PASSWORD, "again": PASSWORD}
    assert "confirm first" in problem(hub.send(browser, "/account/password", "/account", **change))
    hub.confirm(browser, sub=who)
    assert "You have confirmed" in as_page(browser.get("/account")).text
    short = {"old": "", "new": "short", "again": "short"}
    assert "10 to" in problem(hub.send(browser, "/account/password", "/account", **short)), "this uses nothing up"
    other = hub.browser()
    hub.sign_in(other, sub=who)
    assert "confirm first" in problem(hub.send(other, "/account/password", "/account", **change)), "another browser"
    assert hub.send(browser, "/account/password", "/account", **change).status_code == 303
    assert other.get("/account").status_code == 303, "it was signed out"
    assert "You have confirmed" not in browser.get("/account").text, "it counts once"
    signed_in = hub.send(hub.browser(), "/login", name=name, password=PASSWORD, next="/account")
    assert signed_in.headers["location"] == "/account"


def test_a_confirmation_by_another_person_or_by_an_old_sign_in_confirms_nothing(hub: OpenIdHub, who: str) -> None:
    browser = hub.register(new_name("oid"), sub=who)
    asked = onward(hub.send(browser, "/account/confirm", "/account"))
    assert "prompt=login&max_age=0" in asked
    assert "another person" in problem(hub.back(browser, asked, sub=f"{who}-2"))
    assert "let you sign in again" in problem(hub.confirm(browser, sub=who, auth_time=1_000_000_000))
    assert "does not say when" in problem(hub.confirm(browser, sub=who, auth_time=None))
    assert "You have confirmed" not in browser.get("/account").text


def test_nothing_waits_for_the_database_on_the_event_loop(hub: OpenIdHub, who: str) -> None:
    found: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        with contextlib.suppress(RuntimeError):  # there is no loop in a thread of its own
            asyncio.get_running_loop()
            found.append(statement)

    engine, name = hub.people.hub.database.engine, new_name("oid")
    event.listen(engine, "before_cursor_execute", note)
    try:
        browser = hub.register(name, sub=who)
        hub.confirm(browser, sub=who)
        hub.back(browser, onward(hub.send(browser, "/account/identities", "/account")), sub=f"{who}-2")
        hub.confirm(browser, sub=who)
        assert hub.send(browser, "/account/delete", "/account", name=name).headers["location"] == "/"
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert found == []


def test_an_account_without_a_password_is_deleted_after_a_confirmation(hub: OpenIdHub, who: str) -> None:
    name = new_name("oid")
    browser = hub.register(name, sub=who, email="x@example.org", email_verified=True)
    exported = browser.get("/account/export").json()
    assert [(one["subject"], one["email"]) for one in exported["identities"]] == [(who, "x@example.org")]
    assert "confirm first" in problem(hub.send(browser, "/account/delete", "/account", name=name))
    hub.leave(browser)
    hub.confirm(browser, sub=who)
    hub.send(browser, "/account/confirm", "/account")  # begins once more, and never comes back
    assert hub.send(browser, "/account/delete", "/account", name=name).headers["location"] == "/"
    with hub.people.hub.database.reading() as session:
        assert session.scalars(select(AccountIdentity).where(AccountIdentity.subject == who)).all() == []
        known = select(PendingSignIn).where(PendingSignIn.account_id.not_in(select(Account.id)))
        assert session.scalars(known).all() == []
    assert onward(hub.sign_in(hub.browser(), sub=who)) == "/register/openid"


def test_the_last_way_to_sign_in_stays(hub: OpenIdHub, who: str) -> None:
    browser = hub.register(new_name("oid"), sub=who)
    hub.confirm(browser, sub=who)
    address = onward(hub.send(browser, "/account/identities", "/account"))
    hub.back(browser, address, sub=f"{who}-2")

    def unlink() -> str:
        page = as_page(browser.get("/account"))
        return next(one["action"] for one in page.all("form") if one.get("action", "").endswith("/unlink"))

    hub.confirm(browser, sub=who)
    assert hub.send(browser, unlink(), "/account").status_code == 303
    hub.confirm(browser, sub=f"{who}-2")
    assert "last way" in problem(hub.send(browser, unlink(), "/account"))
    assert hub.people.browser("bob").get("/account").status_code == 200
    assert hub.send(hub.browser("bob"), unlink(), "/account", password=PASSWORD).status_code == 404, "not theirs"


def test_a_disabled_account_gets_the_answer_of_an_unknown_one(hub: OpenIdHub, who: str) -> None:
    name = new_name("oid")
    browser = hub.register(name, sub=who)
    hub.people.hub.people.accounts.set_disabled(name, disabled=True)
    assert browser.get("/account").status_code == 303
    refused = problem(hub.sign_in(hub.browser(), sub=who))
    assert NO_ACCOUNT[1:] in refused
    hub.people.hub.people.accounts.set_disabled(name, disabled=False)
    assert onward(hub.sign_in(hub.browser(), sub=who)) == "/account"


def test_the_operators_new_password_unlinks_all_identities(hub: OpenIdHub, who: str) -> None:
    name = new_name("oid")
    browser = hub.register(name, sub=who)
    hub.people.hub.people.accounts.reset_password(name, PASSWORD)
    assert browser.get("/account").status_code == 303
    assert onward(hub.sign_in(hub.browser(), sub=who)) == "/register/openid"


def test_programs_are_sent_to_the_site_where_an_account_has_no_password(hub: OpenIdHub, who: str) -> None:
    name = new_name("oid")
    browser = hub.register(name, sub=who)
    answer = hub.send(browser, "/account/tokens", "/account/tokens", name="ci", scope="account", days="30")
    token = re.findall(rf"{TOKEN_PREFIX}[0-9a-f]{{72}}", as_page(answer, 201).text)[0]
    client = hub.people.as_(token)
    assert client.get("/api/v1/account").json()["name"] == name
    refused = client.request("DELETE", "/api/v1/account", json={"password": ""})
    assert (refused.status_code, "on the site" in refused.text) == (401, True)
    login = {"account": name, "password": "", "name": "x", "scopes": ["read"]}
    assert hub.people.client.post("/api/v1/login", json=login).status_code == 401


def test_a_restored_hub_knows_the_identities(hub: OpenIdHub, who: str, tmp_path: Path) -> None:
    browser = hub.register(new_name("oid"), sub=who)
    hub.send(browser, "/account/confirm", "/account")
    settings = hub.people.hub.settings
    with open_parts(settings.data, settings.database_url) as parts:
        file, _ = write_backup(parts, tmp_path / "backup.tar")
        assert check_hub(parts).ok
    with open_parts(tmp_path / "restored", new=True) as parts:
        restore_backup(parts, file)
    found = []
    for folder, url in ((settings.data, settings.database_url), (tmp_path / "restored", None)):
        with open_parts(folder, url) as parts, Session(parts.engine) as session:
            columns = AccountIdentity.issuer, AccountIdentity.subject, AccountIdentity.account_id
            identities = session.execute(select(*columns).order_by(AccountIdentity.id)).all()
            begun = session.scalars(select(PendingSignIn.digest).order_by(PendingSignIn.digest)).all()
            found.append((identities, begun))
    assert found[0] == found[1]
    assert who in {one.subject for one in found[1][0]}


# ── who may come in ────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_linked_accounts_sign_in_where_registration_is_closed(tmp_path: Path) -> None:
    with openid_hub(tmp_path, registration="closed") as hub:
        claims: dict[str, Any] = {"preferred_username": "alice", "email": "alice@example.org", "email_verified": True}
        assert NO_ACCOUNT[1:] in problem(hub.sign_in(hub.browser(), **claims))
        browser = hub.browser("alice")
        hub.back(browser, onward(hub.send(browser, "/account/identities", "/account", password=PASSWORD)), **claims)
        assert onward(hub.sign_in(hub.browser(), **claims)) == "/account"


def test_an_invitation_registers_one_person(tmp_path: Path) -> None:
    with openid_hub(tmp_path, registration="invite") as hub:
        code = hub.people.hub.people.invitations.create(actor="").code
        browser, other = hub.browser(), hub.browser()
        hub.sign_in(browser, sub="one")
        hub.sign_in(other, sub="two")
        where = "/register/openid"
        assert "not valid" in problem(hub.send(browser, where, where, name="dave", invitation="invite-no"))
        assert hub.send(browser, where, where, name="r00t", invitation=code).status_code == 422
        assert hub.send(browser, where, where, name="dave", invitation=code).status_code == 303
        assert "not valid" in problem(hub.send(other, where, where, name="erin", invitation=code))


@pytest.mark.parametrize(
    ("claims", "enters"),
    [
        ({"email": "a@example.org", "email_verified": True}, True),
        ({"email": "a@EXAMPLE.org", "email_verified": True}, True),
        ({"email": "a@example.org", "email_verified": False}, False),
        ({"email": "a@example.org", "email_verified": "true"}, False),
        ({"email": "a@example.org"}, False),
        ({"email": "a@example.org@evil.org", "email_verified": True}, False),
        ({"email": "a@evilexample.org", "email_verified": True}, False),
        ({}, False),
    ],
)
def test_only_verified_addresses_of_the_allowed_domains_come_in(
    strict_hub: OpenIdHub, claims: dict[str, Any], enters: bool
) -> None:
    answer = strict_hub.sign_in(strict_hub.browser(), groups=["staff"], **claims)
    assert (answer.status_code == 200) is enters, answer.text


@pytest.mark.parametrize(
    ("groups", "enters"), [(["x", "staff"], True), ("staff", True), (["staffs"], False), (7, False)]
)
def test_only_people_of_the_allowed_groups_come_in(strict_hub: OpenIdHub, groups: object, enters: bool) -> None:
    claims: dict[str, Any] = {"email": "b@example.org", "email_verified": True}
    answer = strict_hub.sign_in(strict_hub.browser(), groups=groups, **claims)
    assert (answer.status_code == 200) is enters, answer.text


@pytest.fixture(scope="module")
def strict_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdHub]:
    """A hub that lets in some people only, without passwords, and with a group of administrators."""
    settings: dict[str, Any] = {
        "allowed_domains": ("example.org",),
        "allowed_groups": ("staff",),
        "admin_group": "admins",
    }
    with openid_hub(tmp_path_factory.mktemp("strict"), passwords=False, **settings) as found:
        yield found


def test_a_group_makes_administrators_as_long_as_its_people_are_in_it(strict_hub: OpenIdHub) -> None:
    hub, name = strict_hub, new_name("oid")
    of_staff: dict[str, Any] = {"sub": "boss", "email": "c@example.org", "email_verified": True, "groups": ["staff"]}
    of_admins: dict[str, Any] = {**of_staff, "groups": ["staff", "admins"]}
    browser = hub.register(name, **of_staff)
    assert browser.get("/account/audit/all").status_code == 403
    hub.sign_in(browser, **of_admins)
    assert browser.get("/account/audit/all").status_code == 200
    answer = hub.send(browser, "/account/tokens", "/account/tokens", name="ci", scope="admin", days="30")
    token = re.findall(rf"{TOKEN_PREFIX}[0-9a-f]{{72}}", as_page(answer, 201).text)[0]
    assert hub.people.as_(token).get("/api/v1/audit").status_code == 200
    hub.sign_in(hub.browser(), **of_staff)
    assert browser.get("/account/audit/all").status_code == 403
    assert hub.people.as_(token).get("/api/v1/audit").status_code == 403, "its token may no more, too"
    assert {"made administrator", "administrator no more"} <= set(actions(hub, name))
    assert hub.people.hub.people.accounts.info("root").admin, "who was one before stays"


def test_a_hub_without_passwords_takes_none(strict_hub: OpenIdHub) -> None:
    browser = strict_hub.browser()
    assert "password" not in {one.get("name") for one in as_page(browser.get("/login")).all("input")}
    refused = strict_hub.send(browser, "/login", name="alice", password=PASSWORD)
    assert (refused.status_code, "no passwords" in problem(refused)) == (403, True)
    login = {"account": "alice", "password": PASSWORD, "name": "x", "scopes": ["read"]}
    assert strict_hub.people.client.post("/api/v1/login", json=login).status_code == 403
    new = {"name": new_name("oid"), "password": PASSWORD}
    assert strict_hub.people.client.post("/api/v1/register", json=new).status_code == 403


def test_a_hub_with_a_provider_is_never_open(tmp_path: Path) -> None:
    with openid_hub(tmp_path) as hub:
        hub.people.hub.people.accounts.exist = lambda: False  # type: ignore[method-assign]  # as before the first account
        hub.people.hub.authenticator._has_accounts = False
        assert hub.people.as_(None).get("/api/v1/audit").status_code == 401


def test_a_private_package_stays_hidden_from_a_new_account(hub: OpenIdHub, who: str) -> None:
    package = f"alice/{new_name()}"
    assert publish_private(hub.people.of("alice", [HubScope.PUBLISH]), release(package)).status_code == 201
    assert hub.register(new_name("oid"), sub=who).get(f"/{package}").status_code == 404


@pytest.mark.parametrize(
    ("username", "name"),
    [
        ("Ada.Lovelace", "adalovelace"), ("ada@example.org", "ada"), ("007bond", "bond"), ("аda", "da"), ("", ""),
        ("x" * 60, "x" * 39),
    ],
)  # fmt: skip
def test_the_proposed_name_keeps_to_the_rules(username: str, name: str) -> None:
    assert proposed_name(username) == name
