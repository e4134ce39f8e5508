"""Accounts and their tokens: who may have one, what it may do, when it ends, and what is recorded and kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from argon2 import PasswordHasher
from hub_people import PASSWORD, PeopleHub, in_process, people_hub, publish_private, statements
from hubs import KEY, kind_of, new_name, publish, published, release
from sqlalchemy import update

from ludus.hub.access.viewers import Viewer
from ludus.hub.app import create_hub, parts_of
from ludus.hub.core.rates import RateSettings
from ludus.hub.database.tables import AccessToken
from ludus.hub.people import access_tokens, passwords, sessions
from ludus.hub.people.access_tokens import checksum
from ludus.hub.people.audit import KEPT_DAYS
from ludus.hub.people.device_sign_ins import LASTS
from ludus.hub.people.passwords import Passwords
from ludus.hub.people.sessions import IDLE, LONGEST
from ludus.hub.settings.hub import HubSettings
from ludus.hub.settings.people import PeopleSettings
from ludus.protocol.errors import CapacityError
from ludus.registry.types.people import DEFAULT_DAYS, TOKEN_PREFIX, USUAL_SCOPES, HubScope, NewToken
from ludus.registry.types.signing import public_key


@pytest.fixture(scope="module")
def people(request: pytest.FixtureRequest, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    """A hub where everyone may register."""
    database = None if kind == "sqlite" else request.getfixturevalue("postgres").new_url()
    settings = PeopleSettings(registration="open", rates=RateSettings(registrations_hour=1000, logins_of_address=1000))
    with people_hub(tmp_path_factory.mktemp("people"), database, people=settings) as hub:
        yield hub


def login(client: httpx.Client, name: str, password: str, **fields: Any) -> httpx.Response:
    body = {"account": name, "password": password, "name": "laptop", "scopes": ["read"], **fields}
    return client.post("/api/v1/login", json=body)


def register(client: httpx.Client, name: str, password: str = PASSWORD, **fields: Any) -> httpx.Response:
    return client.post("/api/v1/register", json={"name": name, "password": password, **fields})


# ── accounts ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("hub", first=1)
def test_a_person_registers_makes_a_token_and_publishes(people: PeopleHub) -> None:
    name = new_name("reg")
    assert register(people.client, name).json()["name"] == name
    made = login(people.client, name, PASSWORD, scopes=["read", "publish"]).json()
    client = people.as_(made["token"])
    assert published(client, release(f"{name}/coin"))["uploadedBy"] == name
    assert kind_of(publish(client, release("alice/not-mine"))) == "Forbidden"
    assert client.get("/api/v1/account").status_code == 403


@pytest.mark.suite("hub", first=4)
@pytest.mark.parametrize(
    "name",
    ["alice", "al1ce", "root", "r00t", "local", "ludus", "admin", "Bob", "b", "аlice", "a" * 40, "a b", "a%", ""],
)
def test_a_name_that_is_taken_reserved_or_looks_alike_is_refused(people: PeopleHub, name: str) -> None:
    answer = register(people.client, name)
    assert (answer.status_code, kind_of(answer)) == (422, "NameRefused")


def test_a_name_of_an_owner_who_has_packages_cannot_be_registered(people: PeopleHub) -> None:
    owner = new_name("pre")
    published(people.of("root", [HubScope.ADMIN]), release(f"{owner}/coin"))
    assert kind_of(register(people.client, owner)) == "NameRefused"
    person = people.hub.people.accounts.create(owner, PASSWORD, of_existing_owner=True)
    assert person.name == owner, "the operator may give it to its person"


def test_rights_that_were_entered_before_an_account_existed_are_not_its_own(people: PeopleHub) -> None:
    name, squatter = f"alice/{new_name()}", new_name("sq")
    publish_private(people.of("alice"), release(name))
    where = f"/api/v1/environments/{name}"
    people.of("alice").put(f"{where}/readers/{squatter}")
    people.of("alice").put(f"{where}/owners/{squatter}")
    register(people.client, squatter)
    assert people.of(squatter).get(where).status_code == 404


@pytest.mark.parametrize("password", ["short", "x" * 1001, ""])
def test_a_password_that_is_too_short_or_too_long_is_refused(people: PeopleHub, password: str) -> None:
    assert kind_of(register(people.client, new_name("pw"), password)) == "InvalidParams"


def test_a_password_of_a_megabyte_is_refused_without_being_hashed(
    people: PeopleHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object) -> str:
        raise AssertionError("hashed")

    monkeypatch.setattr(PasswordHasher, "hash", never)
    monkeypatch.setattr(PasswordHasher, "verify", never)
    assert kind_of(register(people.client, new_name("pw"), "x" * 1_000_000)) == "InvalidParams"
    assert kind_of(login(people.client, "alice", "x" * 1_000_000)) == "InvalidParams"


def test_registration_is_closed_by_default_and_needs_a_code_by_invitation(tmp_path: Path) -> None:
    with people_hub(tmp_path / "closed", None, ()) as hub:
        assert kind_of(register(hub.client, "dave")) == "Forbidden"
    with people_hub(tmp_path / "invite", None, ("bob",), people=PeopleSettings(registration="invite")) as hub:
        assert kind_of(register(hub.client, "dave")) == "Forbidden"
        assert kind_of(register(hub.client, "dave", invitation="invite-nonsense")) == "Forbidden"
        assert kind_of(hub.of("bob").post("/api/v1/invitations")) == "Forbidden"
        code = hub.of("root", [HubScope.ADMIN]).post("/api/v1/invitations").json()["code"]
        assert kind_of(register(hub.client, "r00t", invitation=code)) == "NameRefused"
        assert register(hub.client, "dave", invitation=code).status_code == 201, "a refused name uses no code up"
        assert kind_of(register(hub.client, "erin", invitation=code)) == "Forbidden"


def test_an_open_hub_takes_no_registrations_and_its_first_account_ends_that(tmp_path: Path) -> None:
    app = create_hub(HubSettings(data=tmp_path, seed=False))
    with in_process(app) as client:
        assert kind_of(register(client, "dave")) == "Forbidden"
        published(client, release("local/coin"))
        parts_of(app).hub.people.accounts.create("root", PASSWORD, admin=True)
        assert kind_of(publish(client, release("local/coin", "1.1.0"))) == "Unauthenticated"


# ── signing in ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_unknown_disabled_and_wrong_get_one_answer_after_the_same_work(
    people: PeopleHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name("dis")
    register(people.client, name)
    people.of("root", [HubScope.ADMIN]).put(f"/api/v1/accounts/{name}/disabled")
    verified: list[str] = []
    real = PasswordHasher.verify

    def counted(self: PasswordHasher, hashed: str, password: bytes) -> bool:
        verified.append(hashed.rpartition("$")[0].rpartition("$")[0])
        return real(self, hashed, password)

    monkeypatch.setattr(PasswordHasher, "verify", counted)
    answers, queries = [], []
    for who, password in ((name, PASSWORD), ("alice", "not the password"), (new_name("none"), PASSWORD)):
        with statements(people.hub) as found:
            answers.append(login(people.client, who, password))
        queries.append(found)
    assert {(one.status_code, one.text) for one in answers} == {(401, answers[0].text)}
    assert len(verified) == 3, "each costs one hash"
    assert len(set(verified)) == 1, "with the same parameters"
    assert queries[0] == queries[1] == queries[2]


def test_many_attempts_to_sign_in_are_refused_for_a_while(tmp_path: Path) -> None:
    rates = RateSettings(logins_of_pair=3, logins_of_address=6)
    with people_hub(tmp_path, None, ("alice", "bob"), people=PeopleSettings(rates=rates)) as hub:
        assert [login(hub.client, "alice", "wrong password").status_code for _ in range(4)] == [401, 401, 401, 429]
        refused = login(hub.client, "alice", PASSWORD)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert login(hub.client, "bob", PASSWORD).status_code == 201, "another name may"
        assert login(hub.client, new_name("x"), PASSWORD).status_code == 429, "until the address has used its share"


def test_no_more_hashes_than_two_run_and_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, begun, go = 0, 0, threading.Semaphore(0), threading.Event()
    lock = threading.Lock()

    class Slow(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            begun.release()
            go.wait(30)
            with lock:
                running -= 1
            return True

    monkeypatch.setattr(passwords, "WAITING", 3)
    hashes = Passwords(Slow())
    threads = [threading.Thread(target=hashes.verify, args=("hash", "password")) for _ in range(5)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        assert begun.acquire(timeout=30)
    refused = None
    while refused is None:  # until the three others have queued up
        extra = threading.Thread(target=lambda: None)
        extra.start()
        extra.join()
        if hashes._queue._value == 0:
            with pytest.raises(CapacityError, match="too many people") as refused:
                hashes.verify("hash", "password")
    go.set()
    for thread in threads:
        thread.join(30)
    assert most == 2


# ── tokens ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_is_shown_once_and_kept_as_a_digest(people: PeopleHub, monkeypatch: pytest.MonkeyPatch) -> None:
    client = people.of("alice")
    made = client.post("/api/v1/account/tokens", json={"name": "ci", "scopes": ["read"]}).json()
    secret: str = made["token"]
    body, check = secret.removeprefix(TOKEN_PREFIX)[:-8], secret[-8:]
    assert secret.startswith(TOKEN_PREFIX)
    assert checksum(body) == check
    assert secret not in client.get("/api/v1/account/tokens").text
    with people.hub.database.reading() as session:
        rows = session.query(AccessToken).all()
    assert all(secret not in str(vars(row)) for row in rows)


def test_a_token_that_was_revoked_has_expired_or_is_of_a_disabled_account_is_refused(
    people: PeopleHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name("tok")
    register(people.client, name)
    client, victim = people.of(name), people.of(name)
    token = client.get("/api/v1/account/tokens").json()["tokens"][0]["id"]
    assert victim.get("/api/v1/environments").status_code == 200
    assert client.delete(f"/api/v1/account/tokens/{token}").status_code == 204
    assert victim.get("/api/v1/environments").status_code == 401
    assert client.delete(f"/api/v1/account/tokens/{token}").status_code == 404

    root = people.of("root", [HubScope.ADMIN])
    assert client.get("/api/v1/account").status_code == 200
    assert root.put(f"/api/v1/accounts/{name}/disabled").json()["disabled"] is True
    assert client.get("/api/v1/environments").status_code == 401
    root.delete(f"/api/v1/accounts/{name}/disabled")
    assert client.get("/api/v1/account").status_code == 200

    with people.hub.database.writing() as session:
        past = people.hub.people.accounts.info(name).created_at
        session.execute(
            update(AccessToken).values(expires_at=past).where(AccessToken.account_id == people.account(name))
        )
    people.hub.people.tokens.forget()
    assert "expired" in client.get("/api/v1/environments").text


def test_a_token_of_another_account_cannot_be_revoked(people: PeopleHub) -> None:
    token = people.of("alice").get("/api/v1/account/tokens").json()["tokens"][0]["id"]
    assert people.of("bob").delete(f"/api/v1/account/tokens/{token}").status_code == 404


def test_each_scope_opens_its_own_requests_only(people: PeopleHub) -> None:
    name = f"alice/{new_name()}"
    published(people.of("alice"), release(name))
    where = f"/api/v1/environments/{name}"
    requests: dict[HubScope, tuple[str, str, Any]] = {
        HubScope.PUBLISH: ("POST", f"{where}/versions/1.0.0/yank", {"reason": "old"}),
        HubScope.ACCOUNT: ("PUT", f"{where}/owners/bob", None),
        HubScope.RUN: ("GET", f"/e/{name}/list_environments", None),
        HubScope.ADMIN: ("GET", "/api/v1/audit", None),
    }
    for scope in HubScope:
        client = people.of("root", [scope]) if scope is HubScope.ADMIN else people.of("alice", [scope])
        for needed, (method, path, body) in requests.items():
            if needed is HubScope.RUN and scope in (HubScope.RUN, HubScope.ADMIN):
                continue  # would start a server
            allowed = scope in (needed, HubScope.ADMIN)
            assert (client.request(method, path, json=body).status_code == 403) is not allowed, (scope, needed)


def test_a_token_makes_no_token_that_may_do_more(people: PeopleHub) -> None:
    client = people.of("alice", [HubScope.ACCOUNT, HubScope.READ])
    tokens = "/api/v1/account/tokens"
    assert kind_of(client.post(tokens, json={"name": "x", "scopes": ["publish"]})) == "Forbidden"
    assert kind_of(people.of("alice").post(tokens, json={"name": "x", "scopes": ["admin"]})) == "Forbidden"
    assert kind_of(login(people.client, "alice", PASSWORD, scopes=["admin"])) == "Forbidden"
    limited = {"name": "x", "scopes": ["account"], "packages": ["alice/x"]}
    assert kind_of(client.post(tokens, json=limited)) == "Conflict"
    assert kind_of(client.post(tokens, json={"name": "x", "scopes": ["all"]})) == "InvalidParams"


def test_an_account_has_a_bounded_number_of_tokens(people: PeopleHub, monkeypatch: pytest.MonkeyPatch) -> None:
    name = new_name("many")
    register(people.client, name)
    client = people.of(name)
    monkeypatch.setattr(access_tokens, "MOST_TOKENS", 1)
    assert kind_of(client.post("/api/v1/account/tokens", json={"name": "x", "scopes": ["read"]})) == "Conflict"


@pytest.mark.parametrize("token", ["ludus_hub_", "ludus_hub_" + "0" * 72, "lent_x", "lent_" + "0" * 43, "ludus_x", "%"])
def test_a_made_up_token_is_refused(people: PeopleHub, token: str) -> None:
    assert people.as_(token).get("/api/v1/environments").status_code == 401


def test_requests_over_the_rate_get_429_with_the_time_to_wait(tmp_path: Path) -> None:
    rates = RateSettings(address_minute=3, token_minute=4, wrong_tokens_minute=2)
    with people_hub(tmp_path, None, ("alice",), people=PeopleSettings(rates=rates)) as hub:
        stranger, alice, wrong = hub.as_(None), hub.of("alice"), hub.as_("ludus_hub_wrong")
        search = "/api/v1/environments"
        assert [stranger.get(search).status_code for _ in range(4)] == [200, 200, 200, 429]
        assert [alice.get(search).status_code for _ in range(5)] == [200, 200, 200, 200, 429]
        assert [wrong.get(search).status_code for _ in range(3)] == [401, 401, 429]
        refused = stranger.get("/index/simple/")
        assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (429, True)
        page = hub.browser().get("/")
        assert (page.status_code, "<html" in page.text) == (429, True)
        assert hub.client.get("/health").status_code == 200


def test_wrong_tokens_and_passwords_of_an_address_refuse_no_valid_token_and_further_passwords(tmp_path: Path) -> None:
    rates = RateSettings(wrong_tokens_minute=2, logins_of_address=4, logins_of_pair=100, logins_of_name=100)
    with people_hub(tmp_path, None, ("alice",), people=PeopleSettings(rates=rates)) as hub:
        alice, wrong, search = hub.of("alice"), hub.as_("ludus_hub_wrong"), "/api/v1/environments"
        for expected in (401, 401, 429, 429):
            assert wrong.get(search).status_code == expected
            assert alice.get(search).status_code == 200
        assert [login(hub.client, f"guess-{number}", "x" * 12).status_code for number in range(6)][-1] == 429
        assert alice.get(search).status_code == 200


# ── records ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_audit_log_shows_people_their_own_events_and_administrators_all_of_them(people: PeopleHub) -> None:
    name = new_name("aud")
    register(people.client, name)
    client = people.of(name)
    publish_private(client, release(f"{name}/coin"))
    events = client.get("/api/v1/account/audit").json()["events"]
    assert {"account created", "token created", "published"} <= {one["action"] for one in events}
    assert {one["account"] for one in events} == {name}
    assert events[0]["address"] == "testclient"
    assert [one["actor"] for one in events if one["action"] == "account created"] == [name]
    by_operator = people.hub.people.audit.events("alice", 10_000)
    assert [one.actor for one in by_operator if one.action == "account created"] == [""]
    assert name not in people.of("bob").get("/api/v1/account/audit").text
    assert kind_of(people.of("bob").get("/api/v1/audit")) == "Forbidden"
    everything = people.of("root", [HubScope.ADMIN]).get("/api/v1/audit").text
    assert name in everything
    assert TOKEN_PREFIX not in everything
    assert PASSWORD not in everything


def test_of_sign_ins_with_operators_tokens_the_one_used_least_recently_ends(
    people: PeopleHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_OPERATORS", 2)
    kept = sessions.Sessions(people.hub.database, lambda token: Viewer.of_administrator(token))
    for name in ("first", "second"):
        kept.begin_with_token(name, f"cookie of {name}")
    assert kept.viewer("cookie of first") is not None
    kept.begin_with_token("third", "cookie of third")
    found = [kept.viewer(f"cookie of {name}") for name in ("first", "second", "third")]
    assert [one and one.name for one in found] == ["first", None, "third"]


def test_an_export_has_all_that_is_kept_of_a_person_and_no_secret(people: PeopleHub) -> None:
    name = new_name("exp")
    register(people.client, name)
    token = people.token(name)
    client = people.as_(token)
    publish_private(client, release(f"{name}/coin"))
    found = client.get("/api/v1/account/export").json()
    assert found["account"]["name"] == name
    assert found["packages"][0]["private"] is True
    assert found["keys"][0]["key"] == public_key(KEY)
    assert {"sessions", "tokens", "audit", "maintainerOf", "readerOf", "rollouts"} <= found.keys()
    assert token not in json.dumps(found)
    assert "argon2" not in json.dumps(found)


def test_a_deleted_account_leaves_its_public_packages_and_nothing_else(people: PeopleHub) -> None:
    name = new_name("del")
    register(people.client, name)
    client = people.of(name)
    public, private = release(f"{name}/open"), release(f"{name}/closed")
    published(client, public)
    publish_private(client, private)
    wheel = people.hub.blobs.path(private.sha256)
    assert wheel.is_file()
    remove = ("DELETE", "/api/v1/account")
    assert client.request(*remove, json={"password": "not the password"}).status_code == 401
    assert client.request(*remove, json={"password": PASSWORD}).status_code == 204
    assert client.get("/api/v1/environments").status_code == 401
    assert login(people.client, name, PASSWORD).status_code == 401
    assert people.client.get(f"/files/{public.sha256}/{public.filename}").status_code == 200
    assert "was deleted" in people.browser().get(f"/{name}/open").text
    root = people.of("root", [HubScope.ADMIN])
    assert root.get(f"/api/v1/environments/{name}/closed").status_code == 404
    assert not wheel.exists()
    assert kind_of(register(people.client, name)) == "NameRefused", "no other person gets the name"
    assert f'"account":"{name}"' not in root.get("/api/v1/audit").text


def test_the_last_administrator_stays(people: PeopleHub) -> None:
    root = people.of("root", [HubScope.ADMIN])
    assert kind_of(root.put("/api/v1/accounts/root/disabled")) == "Conflict"
    assert kind_of(root.request("DELETE", "/api/v1/account", json={"password": PASSWORD})) == "Conflict"


def test_an_administrator_creates_and_lists_accounts_and_others_do_not(people: PeopleHub) -> None:
    root, name = people.of("root", [HubScope.ADMIN]), new_name("new")
    body = {"name": name, "password": PASSWORD}
    assert kind_of(people.of("bob").post("/api/v1/accounts", json=body)) == "Forbidden"
    assert kind_of(people.of("root", USUAL_SCOPES).post("/api/v1/accounts", json=body)) == "Forbidden"
    assert root.post("/api/v1/accounts", json=body).json()["admin"] is False
    assert name in {one["name"] for one in root.get("/api/v1/accounts").json()["accounts"]}
    assert kind_of(people.of("bob").get("/api/v1/accounts")) == "Forbidden"


@pytest.mark.suite("hub", first=1)
def test_a_changed_password_ends_the_others_and_the_old_one(people: PeopleHub) -> None:
    name = new_name("chg")
    register(people.client, name)
    browser, client = people.browser(name), people.of(name)
    assert browser.get("/account").status_code == 200
    change = {"old": PASSWORD, "new": "another horse battery"}
    assert client.post("/api/v1/account/password", json={**change, "old": "no"}).status_code == 401
    assert client.post("/api/v1/account/password", json=change).status_code == 204
    assert browser.get("/account").status_code == 303
    assert login(people.client, name, PASSWORD).status_code == 401
    assert login(people.client, name, change["new"]).status_code == 201


def test_limits_of_new_tokens_are_checked_before_they_are_made() -> None:
    with pytest.raises(ValueError, match="days"):
        NewToken(name="x", scopes=(HubScope.READ,), days=0)  # pyrefly: ignore[bad-argument-type] (what is refused)


# ── what the page says ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "hub-accounts.md").read_text(encoding="utf-8")
    rates = RateSettings()
    for figure in (
        f"{rates.address_minute} in a minute", f"{rates.token_minute} in a minute",
        f"| {rates.wrong_tokens_minute} in a minute", f"| {rates.logins_of_pair} in 15 minutes",
        f"| {rates.logins_of_address}, and {rates.logins_of_name}, in 15 minutes",
        f"| {rates.device_codes} in 15 minutes", f"for {LASTS // timedelta(minutes=1)} minutes. The log",
        f"| {rates.registrations_hour} in an hour", f"kept for {KEPT_DAYS} days", f"lasts {DEFAULT_DAYS} days",
        f"after {IDLE // timedelta(hours=1)} hours without a request, after {LONGEST.days} days",
    ):  # fmt: skip
        assert figure in page
    assert passwords.CONCURRENT == 2
    assert {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")} == set(HubScope)


def test_a_client_behind_a_proxy_on_this_machine_is_known_by_the_last_address_that_the_proxy_adds(
    tmp_path: Path,
) -> None:
    rates, data = RateSettings(address_minute=1), tmp_path / "proxied" / "data"
    with people_hub(data.parent, None, ()):
        pass  # a hub that others reach needs an account
    settings = HubSettings(
        data=data, seed=False, people=PeopleSettings(rates=rates), public_url="https://hub.example.org"
    )
    with in_process(create_hub(settings)) as client:
        for address, status in (("1.1.1.1", 200), ("2.2.2.2, 1.1.1.1", 429), ("1.1.1.1, 2.2.2.2", 200)):
            assert client.get("/api/v1/environments", headers={"x-forwarded-for": address}).status_code == status
    with people_hub(tmp_path / "direct", None, (), people=PeopleSettings(rates=rates)) as hub:
        for address, status in (("1.1.1.1", 200), ("2.2.2.2", 429)):
            answer = hub.client.get("/api/v1/environments", headers={"x-forwarded-for": address})
            assert answer.status_code == status, "without a proxy, the header is anyone's"
