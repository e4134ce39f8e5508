"""Organizations: members and roles, what each role may do with packages, invitations, and attacks on all of these."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from hub_people import PASSWORD, PeopleHub, in_process, people_hub, publish_private, statements
from hubs import KEY, OTHER_KEY, kind_of, new_name, publish, published, release, upload
from sqlalchemy import delete, text, update
from waiting import block_until

from ludus.hub.app import create_hub
from ludus.hub.core.rates import RateSettings
from ludus.hub.database.tables import OrganizationInvitation, OrganizationMember
from ludus.hub.operation.backup import write_backup
from ludus.hub.operation.check import check_hub
from ludus.hub.operation.parts import open_parts
from ludus.hub.operation.restore import restore_backup
from ludus.hub.people import memberships, organizations
from ludus.hub.people.passwords import Passwords
from ludus.hub.settings.hub import HubSettings
from ludus.hub.settings.people import PeopleSettings
from ludus.protocol.errors import LudusError, NotFound
from ludus.registry.types.organizations import Role
from ludus.registry.types.people import USUAL_SCOPES, HubScope
from ludus.registry.types.signing import public_key

ORGANIZATIONS = "/api/v1/organizations"
OWN = "/api/v1/account/organizations"
PAGE = Path(__file__).parents[2] / "docs" / "hub-accounts.md"
OWNED = organizations.MOST_OWNED
"""What it is outside of these tests, which create many."""


@pytest.fixture(scope="module")
def people(request: pytest.FixtureRequest, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    database = None if kind == "sqlite" else request.getfixturevalue("postgres").new_url()
    settings = PeopleSettings(
        registration="open",
        rates=RateSettings(organizations_day=1000, registrations_hour=1000, logins_of_address=1000, logins_of_pair=100),
    )
    with people_hub(tmp_path_factory.mktemp("people"), database, people=settings) as hub:
        quick = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        hub.hub.people.accounts._passwords = quick  # many people register here
        yield hub


@pytest.fixture(autouse=True)
def _many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(organizations, "MOST_OWNED", 1000)


def new_person(people: PeopleHub, prefix: str = "person") -> str:
    name = new_name(prefix)
    people.hub.people.accounts.create(name, PASSWORD)
    return name


def create(client: httpx.Client, name: str = "", **fields: Any) -> str:
    """Create an organization, and return its name."""
    name = name or new_name("org")
    answer = client.post(ORGANIZATIONS, json={"name": name, **fields})
    assert answer.status_code == 201, answer.text
    assert answer.json()["role"] == "owner"
    return name


def invite(client: httpx.Client, organization: str, name: str, role: str = "reader") -> httpx.Response:
    return client.put(f"{ORGANIZATIONS}/{organization}/invitations/{name}", json={"role": role})


def join(people: PeopleHub, owner: httpx.Client, organization: str, name: str, role: str = "reader") -> None:
    assert invite(owner, organization, name, role).status_code == 200
    assert people.of(name).post(f"{OWN}/{organization}").json()["role"] == role


def roles(client: httpx.Client, organization: str) -> dict[str, str]:
    members = client.get(f"{ORGANIZATIONS}/{organization}").json()["members"]
    return {one["account"]: one["role"] for one in members}


def set_role(client: httpx.Client, organization: str, name: str, role: str) -> httpx.Response:
    return client.put(f"{ORGANIZATIONS}/{organization}/members/{name}", json={"role": role})


def remove(client: httpx.Client, organization: str, name: str) -> httpx.Response:
    return client.delete(f"{ORGANIZATIONS}/{organization}/members/{name}")


# ── creating ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("hub", first=1)
def test_an_account_creates_an_organization_and_publishes_its_packages(people: PeopleHub) -> None:
    alice = people.of("alice")
    name = create(alice)
    one = release(f"{name}/coin")
    assert published(alice, one)["id"] == f"{name}/coin"
    assert f"{name}-coin" in people.as_(None).get(f"/index/{name}/simple/").text
    assert upload(alice, release(f"{name}/coin", "1.1.0")).status_code == 200
    assert [one["organization"] for one in alice.get(OWN).json()["organizations"] if one["organization"] == name]


@pytest.mark.suite("hub", first=2)
@pytest.mark.parametrize("name", ["alice", "al1ce", "root", "ludus", "orgs", "Acme", "b", "аcme", "a" * 40, ""])
def test_a_name_that_is_taken_reserved_or_looks_alike_is_refused(people: PeopleHub, name: str) -> None:
    answer = people.of("alice").post(ORGANIZATIONS, json={"name": name})
    assert (answer.status_code, kind_of(answer)) == (422, "NameRefused")


def test_accounts_and_organizations_share_one_namespace(people: PeopleHub) -> None:
    name = create(people.of("alice"))
    body = {"name": name, "password": PASSWORD}
    assert kind_of(people.client.post("/api/v1/register", json=body)) == "NameRefused"
    with pytest.raises(Exception, match="taken"):
        people.hub.people.accounts.create(name, PASSWORD, of_existing_owner=True)
    assert kind_of(people.of("bob").post(ORGANIZATIONS, json={"name": name})) == "NameRefused"


def test_an_account_owns_and_creates_a_bounded_number(people: PeopleHub, monkeypatch: pytest.MonkeyPatch) -> None:
    client = people.of(new_person(people))
    monkeypatch.setattr(organizations, "MOST_OWNED", 1)
    name = create(client)
    assert kind_of(client.post(ORGANIZATIONS, json={"name": new_name("org")})) == "Conflict"
    assert client.request("DELETE", f"{ORGANIZATIONS}/{name}", json={"name": name}).status_code == 204
    create(client)


def test_creating_and_deleting_does_not_use_up_names_without_end(tmp_path: Path) -> None:
    settings = PeopleSettings(rates=RateSettings(organizations_day=1))
    with people_hub(tmp_path, None, ("alice",), people=settings) as hub:
        alice = hub.of("alice")
        name = create(alice)
        assert alice.request("DELETE", f"{ORGANIZATIONS}/{name}", json={"name": name}).status_code == 204
        assert alice.post(ORGANIZATIONS, json={"name": new_name("org")}).status_code == 429


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for figure in (
        f"owner of {OWNED} organizations", f"up to {organizations.MOST_MEMBERS} members",
        f"ends after {organizations.INVITATION_DAYS} days",
        f"| new organizations of one account | {RateSettings().organizations_day} in a day |",
    ):  # fmt: skip
        assert figure in page


# ── roles ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def team(people: PeopleHub) -> tuple[str, dict[str, str]]:
    """An organization, and the names of its owner, a publisher and a reader."""
    named = {role: new_person(people, str(role)[:3]) for role in ("owner", "publisher", "reader")}
    owner = people.of(named["owner"])
    organization = create(owner)
    for role in ("publisher", "reader"):
        join(people, owner, organization, named[role], role)
    return organization, named


def test_each_role_may_do_what_the_table_says_and_no_more(people: PeopleHub, team: tuple[str, dict[str, str]]) -> None:
    organization, named = team
    clients = {role: people.of(name) for role, name in named.items()} | {"stranger": people.of("carol")}
    name = f"{organization}/coin"
    assert publish_private(clients["owner"], release(name)).status_code == 201
    where = f"/api/v1/environments/{name}"
    page = PAGE.read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.count("|") == 5 and "---" not in line]
    requests: dict[str, list[tuple[str, str, Any]]] = {
        "read and play its private packages": [("GET", where, None), ("GET", f"{where}/versions/latest", None)],
        "publish and yank": [("POST", f"{where}/versions/1.0.0/yank", {"reason": "old"}),
                             ("DELETE", f"{where}/versions/1.0.0/yank", None)],
        "change who reads": [("PUT", f"{where}/readers/bob", None), ("DELETE", f"{where}/readers/bob", None),
                             ("PUT", f"{where}/owners/bob", None), ("DELETE", f"{where}/owners/bob", None),
                             ("GET", f"{where}/access", None), ("PUT", f"{where}/access", {"private": True}),
                             ("POST", f"/api/v1/owners/{organization}/keys", {"key": public_key(OTHER_KEY)})],
        "invite, remove": [("PUT", f"{ORGANIZATIONS}/{organization}/invitations/bob", {"role": "reader"}),
                           ("DELETE", f"{ORGANIZATIONS}/{organization}/invitations/bob", None),
                           ("PUT", f"{ORGANIZATIONS}/{organization}/members/{named['reader']}", {"role": "reader"}),
                           ("PUT", f"{ORGANIZATIONS}/{organization}", {"public": False}),
                           ("GET", f"{ORGANIZATIONS}/{organization}/audit", None)],
        "see its members": [("GET", f"{ORGANIZATIONS}/{organization}", None)],
    }  # fmt: skip
    compared = 0
    for right, sent in requests.items():
        row = next(line for line in table if right in line).split("|")
        allowed: dict[str, bool] = dict(
            zip(("reader", "publisher", "owner"), (cell.strip() == "yes" for cell in row[2:5]), strict=True)
        )
        for role, client in clients.items():
            for method, path, body in sent:
                answer = client.request(method, path, json=body)
                assert (answer.status_code < 300) is allowed.get(role, False), (role, method, path, answer.text)
                compared += 1
    assert compared == 4 * 17


def test_a_reader_publishes_nothing_in_any_way(people: PeopleHub, team: tuple[str, dict[str, str]]) -> None:
    organization, named = team
    owner, reader = people.of(named["owner"]), people.of(named["reader"])
    published(owner, release(f"{organization}/coin"))
    for one in (release(f"{organization}/coin", "2.0.0"), release(f"{organization}/other")):
        assert kind_of(publish(reader, one)) == "Forbidden"
        assert kind_of(publish_private(reader, one)) == "Forbidden"
        assert kind_of(upload(reader, one)) == "Forbidden"


def test_a_publisher_signs_with_a_key_that_an_owner_has_added(
    people: PeopleHub, team: tuple[str, dict[str, str]]
) -> None:
    organization, named = team
    owner, publisher = people.of(named["owner"]), people.of(named["publisher"])
    name, keys = f"{organization}/coin", f"/api/v1/owners/{organization}/keys"
    assert kind_of(publish(publisher, release(name))) == "SignatureRefused", "the first key is an owner's to add"
    assert kind_of(publisher.post(keys, json={"key": public_key(KEY)})) == "Forbidden"
    assert owner.post(keys, json={"key": public_key(KEY)}).status_code == 200
    published(publisher, release(name))
    assert kind_of(publish(publisher, release(name, "2.0.0", key=OTHER_KEY))) == "SignatureRefused"
    assert people.as_(None).get(keys).json()["keys"] == [public_key(KEY)]


def test_a_public_package_of_an_organization_does_not_name_the_member_who_published_it(
    people: PeopleHub, team: tuple[str, dict[str, str]]
) -> None:
    organization, named = team
    owner, publisher = people.of(named["owner"]), people.of(named["publisher"])
    published(owner, release(f"{organization}/coin"))
    assert published(publisher, release(f"{organization}/coin", "1.1.0"))["uploadedBy"] == organization
    stranger = people.as_(None)
    for path in ("owners", "versions", "versions/1.1.0"):
        text = stranger.get(f"/api/v1/environments/{organization}/coin/{path}").text
        assert not any(name in text for name in named.values())
    log = owner.get(f"{ORGANIZATIONS}/{organization}/audit").json()["events"]
    assert (log[0]["action"], log[0]["actor"]) == ("published", named["publisher"])
    assert {one["address"] for one in log} == {""}, "members do not learn where others are"


def test_a_token_for_one_package_of_an_organization_opens_that_one_only(
    people: PeopleHub, team: tuple[str, dict[str, str]]
) -> None:
    organization, named = team
    first, second = f"{organization}/first", f"{organization}/second"
    for name in (first, second):
        assert publish_private(people.of(named["owner"]), release(name)).status_code == 201
    limited = people.of(named["publisher"], [HubScope.READ, HubScope.PUBLISH], (first,))
    assert publish_private(limited, release(first, "2.0.0")).status_code == 201
    assert kind_of(publish_private(limited, release(second, "2.0.0"))) == "Forbidden"
    assert limited.get(f"/api/v1/environments/{first}").status_code == 200
    assert limited.get(f"/api/v1/environments/{second}").status_code == 404
    shown = limited.get(f"{ORGANIZATIONS}/{organization}").json()
    assert (shown["role"], shown["members"], shown["invitations"]) == (None, None, None), "it is not for the account"
    reading = people.of(named["owner"], [HubScope.READ])
    assert kind_of(invite(reading, organization, "bob")) == "Forbidden"
    for scope in (HubScope.RUN, HubScope.PUBLISH, HubScope.RESULTS):
        assert people.of(named["owner"], [scope]).get(f"{ORGANIZATIONS}/{organization}").status_code == 404, scope


def test_the_keys_of_a_private_organization_are_shown_to_tokens_that_show_it(
    people: PeopleHub, team: tuple[str, dict[str, str]]
) -> None:
    organization, named = team
    where, first = f"/api/v1/owners/{organization}/keys", f"{organization}/first"
    owner = people.of(named["owner"])
    assert owner.post(where, json={"key": public_key(KEY)}).status_code == 200

    def shown(role: str, scopes: Sequence[HubScope], packages: tuple[str, ...] = ()) -> bool:
        keys = people.of(named[role], scopes, packages).get(where).json()["keys"]
        assert keys in ([], [public_key(KEY)])
        return bool(keys)

    assert all(shown(role, USUAL_SCOPES) for role in named)
    assert not shown("reader", [HubScope.READ]), "the organization has no package yet"
    publish_private(owner, release(first))
    assert shown("reader", [HubScope.READ])
    assert shown("reader", [HubScope.READ], (first,))
    assert not shown("reader", [HubScope.READ], ("bob/other",))
    for scope in (HubScope.RUN, HubScope.PUBLISH, HubScope.RESULTS):
        assert not shown("owner", [scope]), scope


# ── invitations ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_invitation_is_accepted_once(people: PeopleHub) -> None:
    alice, bob, carol = people.of("alice"), people.of("bob"), people.of("carol")
    name = create(alice)
    assert invite(alice, name, "bob", "publisher").json()["invitations"][0]["account"] == "bob"
    assert [one["organization"] for one in bob.get(OWN).json()["invitations"]] == [name]
    assert kind_of(carol.post(f"{OWN}/{name}")) == "NotFound", "it is bob's"
    assert bob.post(f"{OWN}/{name}").json()["role"] == "publisher"
    assert kind_of(bob.post(f"{OWN}/{name}")) == "NotFound"
    assert remove(alice, name, "bob").status_code == 204
    assert kind_of(bob.post(f"{OWN}/{name}")) == "NotFound", "what was used does not work again after removal"
    assert kind_of(invite(alice, name, "alice")) == "Conflict"


def test_an_invitation_that_was_taken_back_replaced_or_has_expired_is_not_accepted(people: PeopleHub) -> None:
    alice, bob = people.of("alice"), people.of("bob")
    name = create(alice)
    invite(alice, name, "bob", "owner")
    assert alice.delete(f"{ORGANIZATIONS}/{name}/invitations/bob").status_code == 204
    assert kind_of(bob.post(f"{OWN}/{name}")) == "NotFound"
    invite(alice, name, "bob", "owner")
    assert [one["role"] for one in invite(alice, name, "bob", "reader").json()["invitations"]] == ["reader"]
    with people.hub.database.writing() as session:
        session.execute(update(OrganizationInvitation).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    assert kind_of(bob.post(f"{OWN}/{name}")) == "NotFound"
    assert bob.get(OWN).json()["invitations"] == []
    invite(alice, name, "bob", "reader")
    assert bob.post(f"{OWN}/{name}").json()["role"] == "reader", "the role is that of the newest one"


def test_the_invitations_of_an_owner_end_with_its_role(people: PeopleHub) -> None:
    alice, bob = people.of("alice"), people.of("bob")
    name = create(alice)
    ends: tuple[Callable[[], httpx.Response], ...] = (
        partial(set_role, alice, name, "bob", "reader"), partial(remove, alice, name, "bob"),
    )  # fmt: skip
    for end in ends:
        if "bob" in roles(alice, name):
            set_role(alice, name, "bob", "owner")
        else:
            join(people, alice, name, "bob", "owner")
        assert invite(bob, name, "carol", "owner").status_code == 200
        assert end().status_code < 300
        assert kind_of(people.of("carol").post(f"{OWN}/{name}")) == "NotFound"
        assert alice.get(f"{ORGANIZATIONS}/{name}").json()["invitations"] == []


def test_an_invitation_does_not_show_whether_an_account_exists(people: PeopleHub) -> None:
    alice, absent = people.of("alice"), new_name("none")
    person = new_person(people, "some")
    shown, ran = [], []
    for invited in (person, absent):
        name = create(alice)
        with statements(people.hub) as found:
            answer = invite(alice, name, invited)
        if invited == person:
            assert people.of(person).delete(f"{OWN}/{name}").status_code == 204, "declined"
        after, log = alice.get(f"{ORGANIZATIONS}/{name}"), alice.get(f"{ORGANIZATIONS}/{name}/audit")
        events = [one["action"] for one in log.json()["events"]]
        for page in (answer.text, after.text):
            plain = page.replace(name, "org").replace(invited, "invited")
            shown.append([plain[: plain.index('"createdAt"')], plain[plain.index('"invitations"') :][:80]])
        shown.append(events)
        ran.append(found)
    assert shown[:3] == shown[3:]
    assert ran[0] == ran[1]
    own = [one for one in alice.get("/api/v1/account/audit").json()["events"] if one["action"] == "invited"][:2]
    assert [{**one, "account": "", "at": "", "subject": ""} for one in own][0] == {
        **own[1], "account": "", "at": "", "subject": ""
    }  # fmt: skip


def test_who_registers_a_name_that_was_invited_before_gets_nothing(people: PeopleHub) -> None:
    alice, name, squatter = people.of("alice"), create(people.of("alice")), new_name("sq")
    invite(alice, name, squatter, "owner")
    people.hub.people.accounts.create(squatter, PASSWORD)
    assert people.of(squatter).get(OWN).json()["invitations"] == []
    assert kind_of(people.of(squatter).post(f"{OWN}/{name}")) == "NotFound"


def test_an_organization_has_a_bounded_number_of_members_and_invitations(
    people: PeopleHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = people.of("alice")
    name = create(alice)
    monkeypatch.setattr(organizations, "MOST_MEMBERS", 2)
    assert invite(alice, name, "bob").status_code == 200
    assert invite(alice, name, "bob", "publisher").status_code == 200, "a new one replaces the old one"
    assert kind_of(invite(alice, name, "carol")) == "Conflict"


# ── attacks ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("role", ["reader", "publisher"])
def test_a_member_gives_itself_no_other_role(people: PeopleHub, team: tuple[str, dict[str, str]], role: str) -> None:
    organization, named = team
    member, owner = people.of(named[role]), people.of(named["owner"])
    before = roles(owner, organization)
    assert kind_of(set_role(member, organization, named[role], "owner")) == "Forbidden"
    assert kind_of(set_role(member, organization, named["owner"], "reader")) == "Forbidden"
    assert kind_of(invite(member, organization, named[role], "owner")) == "Forbidden"
    assert kind_of(invite(member, organization, "carol", "owner")) == "Forbidden"
    assert kind_of(remove(member, organization, named["owner"])) == "Forbidden"
    assert kind_of(member.post(f"{OWN}/{organization}", json={"role": "owner"})) == "NotFound"
    assert kind_of(member.put(f"{ORGANIZATIONS}/{organization}", json={"public": True})) == "Forbidden"
    gone = member.request("DELETE", f"{ORGANIZATIONS}/{organization}", json={"name": organization})
    assert kind_of(gone) == "Forbidden"
    assert roles(owner, organization) == before
    assert kind_of(set_role(owner, organization, named[role], "admin")) == "InvalidParams"


def test_a_removed_member_has_no_rights_left_with_any_token(
    people: PeopleHub, team: tuple[str, dict[str, str]]
) -> None:
    organization, named = team
    owner = people.of(named["owner"])
    name = f"{organization}/coin"
    one = release(name)
    assert publish_private(owner, one).status_code == 201
    where, file = f"/api/v1/environments/{name}", f"/files/{one.sha256}/{one.filename}"
    for role in ("publisher", "reader"):
        member = named[role]
        owner.put(f"{where}/owners/{member}")
        owner.put(f"{where}/readers/{member}")
        kept, limited = people.of(member), people.of(member, [HubScope.READ, HubScope.PUBLISH], (name,))
        assert [client.get(path).status_code for client in (kept, limited) for path in (where, file)] == [200] * 4
        assert remove(owner, organization, member).status_code == 204
        assert [client.get(path).status_code for client in (kept, limited) for path in (where, file)] == [404] * 4
        for client in (kept, limited):
            assert kind_of(publish(client, release(name, "9.0.0"))) == "Forbidden"
            assert kind_of(upload(client, release(name, "9.0.0"))) == "Forbidden"
        assert people.browser(member).get(f"/{name}").status_code == 404
        assert kept.get(f"{ORGANIZATIONS}/{organization}").status_code == 404
        assert any(one["action"] == "member removed" for one in kept.get("/api/v1/account/audit").json()["events"])


def test_members_leave_and_the_last_owner_does_not(people: PeopleHub, team: tuple[str, dict[str, str]]) -> None:
    organization, named = team
    owner = people.of(named["owner"])
    assert remove(people.of(named["reader"]), organization, named["reader"]).status_code == 204
    assert kind_of(remove(owner, organization, named["owner"])) == "Conflict"
    assert kind_of(set_role(owner, organization, named["owner"], "reader")) == "Conflict"
    assert set_role(owner, organization, named["publisher"], "owner").status_code == 200
    people.hub.people.accounts.set_disabled(named["publisher"], disabled=True)
    assert kind_of(remove(owner, organization, named["owner"])) == "Conflict", "a disabled owner does not count"
    people.hub.people.accounts.set_disabled(named["publisher"], disabled=False)
    assert remove(owner, organization, named["owner"]).status_code == 204
    assert roles(people.of(named["publisher"]), organization) == {named["publisher"]: "owner"}


def at_once(*steps: Callable[[], object]) -> int:
    """Take steps at the same moment, and return how many of them were not refused."""
    begin, done = threading.Barrier(len(steps)), []

    def take(step: Callable[[], object]) -> None:
        begin.wait(30)
        with suppress(LudusError):
            step()
            done.append(step)

    threads = [threading.Thread(target=take, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return len(done)


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize("way", ["remove each other", "leave", "demote each other"])
def test_two_owners_at_the_same_moment_leave_at_least_one(people: PeopleHub, way: str) -> None:
    one, two = new_person(people, "race"), new_person(people, "race")
    root, client, parts = people.of("root", [HubScope.ADMIN]), people.of(one), people.hub.people.organizations
    first, second = (people.hub.people.tokens.viewer(people.token(name)) for name in (one, two))
    for _ in range(4):
        name = create(client)
        join(people, client, name, two, "owner")
        steps: dict[str, tuple[Callable[[], object], ...]] = {
            "remove each other": (
                partial(parts.remove, first, name, two), partial(parts.remove, second, name, one),
            ),
            "leave": (partial(parts.remove, first, name, one), partial(parts.remove, second, name, two)),
            "demote each other": (
                partial(parts.set_role, first, name, two, Role.READER),
                partial(parts.set_role, second, name, one, Role.READER),
            ),
        }  # fmt: skip
        assert at_once(*steps[way]) == 1
        assert "owner" in roles(root, name).values()


class Meanwhile:
    """Takes a step in another thread, in the middle of what a test does."""

    def __init__(self, people: PeopleHub, step: Callable[[], object]) -> None:
        self._people = people
        self._step = step
        self._thread = threading.Thread(target=self._run)
        self.error: Exception | None = None

    def _run(self) -> None:
        try:
            self._step()
        except Exception as error:  # the test looks at it
            self.error = error

    def begin(self) -> None:
        """Begin, and return when the step has ended or waits for a lock."""
        self._thread.start()
        block_until(lambda: not self._thread.is_alive() or self._waits())

    def end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _waits(self) -> bool:
        database = self._people.hub.database
        if database.is_sqlite:  # it does not say who waits; one transaction writes at a time
            self._thread.join(0.2)
            return True
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        with database.reading() as session:
            return bool(session.execute(text(query)).scalar_one())


def before(module: Any, name: str, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin something when a function is called, before it does anything."""
    inner = getattr(module, name)

    def outer(*args: Any, **keywords: Any) -> Any:
        monkeypatch.setattr(module, name, inner)
        meanwhile.begin()
        return inner(*args, **keywords)

    monkeypatch.setattr(module, name, outer)


@pytest.mark.parametrize("first", ["accepted", "deleted"])
def test_an_invitation_is_accepted_while_its_account_is_deleted(
    people: PeopleHub, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    parts, name, alice = people.hub.people, new_person(people), people.of("alice")
    organization = create(alice)
    invite(alice, organization, name)
    account, viewer = people.account(name), parts.tokens.viewer(people.token(name))
    accept = partial(parts.organizations.accept, viewer, organization)
    remove_account = partial(parts.data.delete, name, PASSWORD)
    if first == "accepted":
        meanwhile = Meanwhile(people, remove_account)
        before(organizations, "_add_member", meanwhile, monkeypatch)
        assert [one.account for one in accept().members or ()] == ["alice", name]
    else:
        meanwhile = Meanwhile(people, accept)
        before(memberships, "leave_all", meanwhile, monkeypatch)
        remove_account()
    meanwhile.end()
    assert type(meanwhile.error) is (type(None) if first == "accepted" else NotFound)
    assert not parts.accounts.is_enabled(account)
    assert roles(alice, organization) == {"alice": "owner"}


def test_an_account_is_invited_while_it_is_deleted(people: PeopleHub, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, name, alice = people.hub.people, new_person(people), people.of("alice")
    organization = create(alice)
    meanwhile = Meanwhile(people, partial(parts.data.delete, name, PASSWORD))
    before(organizations, "note", meanwhile, monkeypatch)
    assert invite(alice, organization, name).status_code == 200
    meanwhile.end()
    assert meanwhile.error is None
    (sent,) = alice.get(f"{ORGANIZATIONS}/{organization}").json()["invitations"]
    assert sent["account"] == name


def test_an_account_that_was_deleted_meanwhile_creates_and_accepts_nothing(people: PeopleHub) -> None:
    parts, name, alice = people.hub.people, new_person(people), people.of("alice")
    organization = create(alice)
    invite(alice, organization, name)
    viewer = parts.tokens.viewer(people.token(name))
    parts.data.delete(name, PASSWORD)
    with pytest.raises(NotFound, match="your account was deleted"):
        parts.organizations.create(viewer, new_name("org"))
    with pytest.raises(NotFound, match="your account was deleted"):
        parts.organizations.accept(viewer, organization)


# ── seeing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_strangers_see_an_organization_by_its_public_packages_and_members_only_if_it_is_public(
    people: PeopleHub, team: tuple[str, dict[str, str]]
) -> None:
    organization, named = team
    owner, stranger, bob = people.of(named["owner"]), people.as_(None), people.of("bob")
    where = f"{ORGANIZATIONS}/{organization}"
    absent = stranger.get(f"{ORGANIZATIONS}/{organization[::-1]}").text.replace(organization[::-1], organization)
    publish_private(owner, release(f"{organization}/closed"))
    for client in (stranger, bob):
        assert (client.get(where).status_code, client.get(where).text) == (404, absent)
    assert kind_of(remove(bob, organization, named["owner"])) == "NotFound"
    published(owner, release(f"{organization}/open"))
    for client in (stranger, bob):
        shown = client.get(where).json()
        assert (shown["members"], shown["invitations"], shown["role"]) == (None, None, None)
        assert not any(name in client.get(where).text for name in named.values())
    assert owner.put(where, json={"public": True}).json()["public"] is True
    assert {one["account"] for one in stranger.get(where).json()["members"]} == set(named.values())
    assert stranger.get(where).json()["invitations"] is None
    assert {one["account"] for one in people.of(named["reader"]).get(where).json()["members"]} == set(named.values())


def test_an_administrator_helps_an_organization_without_an_owner_who_can_sign_in(
    people: PeopleHub, team: tuple[str, dict[str, str]]
) -> None:
    organization, named = team
    people.hub.people.accounts.set_disabled(named["owner"], disabled=True)
    root = people.of("root", [HubScope.ADMIN])
    assert set_role(root, organization, named["reader"], "owner").status_code == 200
    assert kind_of(set_role(people.of("root", USUAL_SCOPES), organization, named["reader"], "reader")) == "NotFound"


# ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_deleted_organization_leaves_its_public_packages_and_nothing_else(
    people: PeopleHub, team: tuple[str, dict[str, str]]
) -> None:
    organization, named = team
    owner, publisher = people.of(named["owner"]), people.of(named["publisher"])
    public, private = release(f"{organization}/open"), release(f"{organization}/closed")
    published(owner, public)
    publish_private(owner, private)
    wheel = people.hub.blobs.path(private.sha256)
    assert wheel.is_file()
    wrong = owner.request("DELETE", f"{ORGANIZATIONS}/{organization}", json={"name": "other"})
    assert kind_of(wrong) == "InvalidParams"
    assert owner.request("DELETE", f"{ORGANIZATIONS}/{organization}", json={"name": organization}).status_code == 204
    assert people.client.get(f"/files/{public.sha256}/{public.filename}").status_code == 200
    assert "was deleted" in people.browser().get(f"/{organization}/open").text
    root = people.of("root", [HubScope.ADMIN])
    assert root.get(f"/api/v1/environments/{organization}/closed").status_code == 404
    assert not wheel.exists()
    assert kind_of(publish(publisher, release(f"{organization}/open", "2.0.0"))) == "Forbidden"
    assert kind_of(publish(owner, release(f"{organization}/new"))) == "Forbidden"
    assert owner.get(f"{ORGANIZATIONS}/{organization}").status_code == 404
    assert owner.get(OWN).json()["organizations"] == []
    assert kind_of(owner.post(ORGANIZATIONS, json={"name": organization})) == "NameRefused", "the name is used up"
    body = {"name": organization, "password": PASSWORD}
    assert kind_of(people.client.post("/api/v1/register", json=body)) == "NameRefused"


def test_the_account_of_the_last_owner_is_deleted_after_the_organization_has_another(
    people: PeopleHub, team: tuple[str, dict[str, str]]
) -> None:
    organization, named = team
    owner = people.of(named["owner"])
    invite(owner, organization, "carol", "owner")
    publish_private(owner, release(f"{named['owner']}/mine"))
    refused = owner.request("DELETE", "/api/v1/account", json={"password": PASSWORD})
    assert kind_of(refused) == "Conflict"
    assert f"ludus org role {organization}" in refused.text
    assert owner.get(f"/api/v1/environments/{named['owner']}/mine").status_code == 200, "nothing was deleted"
    set_role(owner, organization, named["publisher"], "owner")
    assert owner.request("DELETE", "/api/v1/account", json={"password": PASSWORD}).status_code == 204
    left = people.of(named["publisher"])
    assert roles(left, organization) == {named["publisher"]: "owner", named["reader"]: "reader"}
    assert left.get(f"{ORGANIZATIONS}/{organization}").json()["invitations"] == [], "its invitations ended"


def test_an_export_has_the_memberships_and_the_invitations(people: PeopleHub, team: tuple[str, dict[str, str]]) -> None:
    organization, named = team
    other = create(people.of("alice"))
    invite(people.of("alice"), other, named["reader"], "publisher")
    found = people.of(named["reader"]).get("/api/v1/account/export").json()
    assert [(one["organization"], one["role"]) for one in found["organizations"]] == [(organization, "reader")]
    assert [one["organization"] for one in found["organizationInvitations"]] == [other]


@pytest.mark.suite("hub")
def test_a_backup_keeps_organizations_and_a_check_finds_one_without_an_owner(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    urls = [None if kind == "sqlite" else request.getfixturevalue("postgres").new_url() for _ in range(2)]
    settings = PeopleSettings(rates=RateSettings(organizations_day=1000))
    with people_hub(tmp_path / "first", urls[0], ("alice", "bob", "carol"), people=settings) as hub:
        name = create(hub.of("alice"))
        join(hub, hub.of("alice"), name, "bob", "publisher")
        invite(hub.of("alice"), name, "carol")
        before = hub.of("alice").get(f"{ORGANIZATIONS}/{name}").json()
        with open_parts(tmp_path / "first" / "data", urls[0]) as parts:
            backup = write_backup(parts, tmp_path / "backup")[0]
    data = tmp_path / "second"
    with open_parts(data, urls[1], new=True) as parts:
        restore_backup(parts, backup)
        assert check_hub(parts).problems == []
    with in_process(create_hub(HubSettings(data=data, database_url=urls[1], seed=False))) as client:
        restored = PeopleHub(client.app, client)  # type: ignore[attr-defined]  # the test client has its application
        alice = restored.of("alice")
        assert alice.get(f"{ORGANIZATIONS}/{name}").json() == before
        assert restored.of("carol").post(f"{OWN}/{name}").status_code == 200
        create(alice)
        with restored.hub.database.writing() as session:
            session.execute(delete(OrganizationMember).where(OrganizationMember.role == Role.OWNER))
        with open_parts(data, urls[1]) as parts:
            found = check_hub(parts)
        assert not found.ok
        assert name in {one.subject for one in found.problems if one.kind == "organization"}
