"""The pages of organizations in a browser: creating one, invitations, members, settings and the end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import httpx
import pytest
from hub_people import PeopleHub, people_hub, publish_private
from hub_sites import as_page
from hubs import new_name, published, release
from sqlalchemy import select

from ludus.hub.core.rates import RateSettings
from ludus.hub.database.tables import Account, Organization, OrganizationInvitation, OrganizationMember, Owner
from ludus.hub.people.organizations import MOST_MEMBERS
from ludus.hub.settings.people import PeopleSettings

OWN = "/account/organizations"
LARGEST = 60_000


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    settings = PeopleSettings(rates=RateSettings(organizations_day=1000))
    with people_hub(tmp_path_factory.mktemp("site"), None, people=settings) as hub:
        yield hub


def send(browser: httpx.Client, page: str, **fields: str) -> httpx.Response:
    """Send a form of a page to the page itself."""
    form_key = as_page(browser.get(page)).hidden("form_key")
    return browser.post(page, data={"form_key": form_key, **fields})


def create(browser: httpx.Client) -> str:
    name = new_name("org")
    answer = send(browser, OWN, do="create", name=name)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/orgs/{name}")
    return name


def test_a_person_creates_an_organization_and_another_accepts_its_invitation(people: PeopleHub) -> None:
    alice, bob = people.browser("alice"), people.browser("bob")
    name = create(alice)
    where = f"/orgs/{name}"
    assert send(alice, where, do="invite", name="bob", role="publisher").headers["location"] == where
    assert f"alice invites you to {name} as publisher" in as_page(bob.get(OWN)).text
    assert send(bob, OWN, do="accept", name=name).headers["location"] == where
    shown = as_page(bob.get(where)).text
    assert "you are its publisher" in shown
    assert "Invite" not in shown, "that is for owners"
    publish_private(people.of("alice"), release(f"{name}/coin"))
    assert f"{name}/coin" in as_page(bob.get(where)).text
    assert f"/orgs/{name}" in bob.get(f"/{name}/coin").text
    assert "Who may read it" not in bob.get(f"/{name}/coin").text
    assert "Who may read it" in alice.get(f"/{name}/coin").text
    assert send(alice, where, do="role", name="bob", role="owner").status_code == 303
    assert "Who may read it" in bob.get(f"/{name}/coin").text
    assert send(bob, where, do="show", to="all").status_code == 303
    assert "Everyone sees them" in as_page(people.browser().get(where)).text
    assert "organization made public" in as_page(bob.get(f"{where}/audit")).text
    assert send(alice, where, do="leave").headers["location"] == OWN
    refused = as_page(send(bob, where, do="leave"), 422)
    assert "last owner" in refused.text
    assert "write the name" in as_page(send(bob, where, do="delete", name="other"), 422).text
    assert send(bob, where, do="delete", name=name).headers["location"] == OWN
    assert bob.get(where).status_code == 404


def test_a_declined_invitation_and_a_refused_step_are_shown(people: PeopleHub) -> None:
    alice, bob = people.browser("alice"), people.browser("bob")
    name = create(alice)
    where = f"/orgs/{name}"
    send(alice, where, do="invite", name="bob", role="reader")
    assert send(bob, OWN, do="decline", name=name).status_code == 303
    assert name not in as_page(bob.get(OWN)).text
    assert "bob" in as_page(alice.get(where)).text
    assert "you have no invitation" in as_page(send(bob, OWN, do="accept", name=name), 422).text
    assert send(alice, where, do="cancel", name="bob").status_code == 303
    for fields, problem in (
        ({"do": "invite", "name": "Not A Name", "role": "reader"}, "cannot be"),
        ({"do": "invite", "name": "bob", "role": "king"}, "choose a role"),
        ({"do": "invite", "name": "", "role": "reader"}, "write the name"),
        ({"do": "remove", "name": "carol"}, "not a member"),
        ({"do": "nonsense"}, "choose what to do"),
    ):
        assert problem in as_page(send(alice, where, **fields), 422).text, fields
    assert "is taken" in as_page(send(alice, OWN, do="create", name="bob"), 422).text


def test_forms_from_another_site_and_of_strangers_change_nothing(people: PeopleHub) -> None:
    alice, bob = people.browser("alice"), people.browser("bob")
    name = create(alice)
    where = f"/orgs/{name}"
    published(people.of("alice"), release(f"{name}/coin"))
    foreign = as_page(bob.get(OWN)).hidden("form_key")
    for fields in ({"do": "invite", "name": "bob", "role": "owner"}, {"do": "delete", "name": name}):
        for browser, form_key in ((alice, ""), (alice, foreign), (bob, foreign)):
            answer = browser.post(where, data={"form_key": form_key, **fields})
            assert answer.status_code == (403 if browser is alice else 422), "bob sees the page, and may not"
    assert bob.get(f"{where}/audit").status_code == 403
    assert people.browser().get(OWN).headers["location"] == f"/login?next={quote(OWN, safe='')}"
    shown = as_page(alice.get(where)).text
    assert "Delete the organization" in shown
    assert "Open invitations" not in shown


def test_the_page_of_a_full_organization_stays_small(people: PeopleHub) -> None:
    alice = people.browser("alice")
    name = create(alice)
    now = datetime.now(UTC)
    with people.hub.database.writing() as session:
        organization = session.scalars(select(Organization.id).where(Organization.name == name)).one()
        for number in range(MOST_MEMBERS // 2 + 50):
            long = f"{'m' * 35}{number:04d}"
            owner = Owner(name=long, skeleton=long, created_at=now)
            session.add(owner)
            session.flush()
            account = Account(owner_id=owner.id, name=long, password="", is_admin=False, created_at=now)
            session.add(account)
            session.flush()
            session.add(
                OrganizationMember(organization_id=organization, account_id=account.id, role="publisher", joined_at=now)
            )
            session.add(
                OrganizationInvitation(
                    organization_id=organization, name=f"{'x' * 35}{number:04d}", role="publisher",
                    invited_by="y" * 39, expires_at=now + timedelta(days=1),
                )
            )  # fmt: skip
    for number in range(20):
        published(people.of("alice"), release(f"{name}/{'p' * 50}{number}", description="d" * 100))
    page = alice.get(f"/orgs/{name}")
    assert len(page.content) < LARGEST
    shown = as_page(page).text
    assert "and 51 others" in shown
    assert "and 200 others" in shown
