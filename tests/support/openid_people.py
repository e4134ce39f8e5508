"""A hub with accounts and an OpenID provider in this process, and browsers that sign in through it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from hub_people import PeopleHub, people_hub
from hub_sites import as_page
from openid_provider import CLIENT, SECRET, TestProvider, onward, openid_provider
from pydantic import SecretStr

from ludus.hub.core.rates import RateSettings
from ludus.hub.settings.openid import OpenIdSettings
from ludus.hub.settings.people import PeopleSettings

CALLBACK = "/login/openid/callback"
PATIENT = PeopleSettings(rates=RateSettings(registrations_hour=1000, logins_of_address=1000, logins_of_pair=1000))


@dataclass
class OpenIdHub:
    """A hub, its provider, and what tests do with both."""

    people: PeopleHub
    provider: TestProvider

    def browser(self, name: str | None = None) -> httpx.Client:
        return self.people.browser(name)

    def send(self, browser: httpx.Client, where: str, page: str = "/login", **fields: str) -> httpx.Response:
        """Send a form of a page."""
        return browser.post(where, data={"form_key": as_page(browser.get(page)).hidden("form_key"), **fields})

    def leave(self, browser: httpx.Client, following: str = "/account") -> str:
        """Begin to sign in, and return the address to which the browser goes."""
        return onward(self.send(browser, "/login/openid", next=following))

    def back(self, browser: httpx.Client, address: str, **claims: Any) -> httpx.Response:
        """Sign in at the provider, and return the answer to the browser that comes back."""
        return self.come(browser, self.provider.grant(address, **claims))

    def come(self, browser: httpx.Client, query: dict[str, str]) -> httpx.Response:
        """Come back from another site: the cookie of the session, which is Strict, is not sent."""
        jar = browser.cookies.jar
        sessions = [one for one in jar if one.name == "ludus_visitor"]
        for one in sessions:
            jar.clear(one.domain, one.path, one.name)
        answer = browser.get(CALLBACK, params=query)
        if "ludus_visitor" not in {one.name for one in jar}:
            for one in sessions:
                jar.set_cookie(one)
        return answer

    def sign_in(self, browser: httpx.Client, following: str = "/account", **claims: Any) -> httpx.Response:
        """Sign in from the button to the answer to the callback."""
        return self.back(browser, self.leave(browser, following), **claims)

    def register(self, name: str, **claims: Any) -> httpx.Client:
        """A browser of a new account without a password, linked with an identity."""
        browser = self.browser()
        assert onward(self.sign_in(browser, **claims)) == "/register/openid"
        answer = self.send(browser, "/register/openid", "/register/openid", name=name)
        assert answer.status_code == 303, answer.text
        return browser

    def confirm(self, browser: httpx.Client, **claims: Any) -> httpx.Response:
        """Sign in once more at the provider."""
        return self.back(browser, onward(self.send(browser, "/account/confirm", "/account")), **claims)


def settings_of(provider: str, **settings: Any) -> OpenIdSettings:
    given: dict[str, Any] = {"client_secret": SecretStr(SECRET), "label": "Example", **settings}
    return OpenIdSettings(issuer=provider, client_id=CLIENT, **given)


@contextmanager
def openid_hub(folder: Path, database: str | None = None, **settings: Any) -> Iterator[OpenIdHub]:
    """Run a hub with a provider, by default one where everyone whom the provider knows may register."""
    with openid_provider() as provider:
        openid = settings_of(provider.url, **{"registration": "open", **settings})
        with people_hub(folder, database, ("alice", "bob"), people=PATIENT, openid=openid) as people:
            yield OpenIdHub(people, provider)


def problem(answer: httpx.Response) -> str:
    """The problem that a page shows."""
    assert answer.status_code >= 400, answer.text
    page = as_page(answer, answer.status_code)
    assert any(one.get("role") == "alert" for one in page.all("p")), answer.text
    return page.text
