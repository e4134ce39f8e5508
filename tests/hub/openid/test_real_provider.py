"""A provider from PyPI in its own process, and a real hub: from the button to the account page, and with a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from axe import AXE
from hub_sites import as_page
from hubs import HubProcess, new_name
from openid_provider import PATIENCE, onward, real_provider, signed_in_at

from ludus.hub.settings.openid import SECRET_VARIABLE

PASSWORD = "correct horse battery staple"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A provider that lets everyone in under the name that they enter."""
    with real_provider(tmp_path_factory.mktemp("provider")) as url:
        yield url


@pytest.fixture(scope="module")
def hub(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub process with an administrator and that provider."""
    folder = tmp_path_factory.mktemp("hub")
    (folder / "openid.toml").write_text(
        f'issuer = "{provider}"\nclient_id = "hub"\nlabel = "Example"\nregistration = "open"\n'
    )
    command = [sys.executable, "-m", "ludus.cli", "hub", "accounts", "create", "root", "--admin", "--password-stdin"]
    subprocess.run([*command, "--data", folder / "data"], input=PASSWORD, text=True, check=True, timeout=PATIENCE)
    options = ("--no-seed", "--openid", str(folder / "openid.toml"))
    process = HubProcess(folder / "data", *options, variables={SECRET_VARIABLE: "hush"})
    yield process
    assert process.stop() == 0


def send(browser: httpx.Client, where: str, page: str, **fields: str) -> httpx.Response:
    return browser.post(where, data={"form_key": as_page(browser.get(page)).hidden("form_key"), **fields})


def sign_in(browser: httpx.Client, person: str, **claims: Any) -> httpx.Response:
    address = onward(send(browser, "/login/openid", "/login", next="/account"))
    back = urlsplit(signed_in_at(address, person, **claims))
    assert f"{back.scheme}://{back.netloc}" == str(browser.base_url).rstrip("/")
    return browser.get(f"{back.path}?{back.query}")


@pytest.mark.suite("hub")
def test_a_person_registers_and_signs_in_again_with_an_unchanged_provider(hub: HubProcess) -> None:
    name = new_name("real")
    with hub.client() as browser:
        browser.headers["accept"] = "text/html"
        assert onward(sign_in(browser, "ada", preferred_username=name, email="a@x.org")) == "/register/openid"
        assert f'value="{name}"' in browser.get("/register/openid").text
        assert send(browser, "/register/openid", "/register/openid", name=name).status_code == 303
    with hub.client() as browser:
        browser.headers["accept"] = "text/html"
        assert onward(sign_in(browser, "ada", preferred_username="root")) == "/account"
        assert name in as_page(browser.get("/account")).text


@pytest.mark.suite("hub")
def test_an_account_without_a_password_is_deleted_after_a_new_sign_in_at_the_provider(hub: HubProcess) -> None:
    name = new_name("real")
    with hub.client() as browser:
        browser.headers["accept"] = "text/html"
        sign_in(browser, "grace")
        send(browser, "/register/openid", "/register/openid", name=name)
        back = urlsplit(signed_in_at(onward(send(browser, "/account/confirm", "/account")), "grace"))
        assert onward(browser.get(f"{back.path}?{back.query}")) == "/account"
        assert send(browser, "/account/delete", "/account", name=name).headers["location"] == "/"
        assert onward(sign_in(browser, "grace")) == "/register/openid"


@pytest.mark.suite("hub")
@pytest.mark.timeout(300)
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_person_in_chromium_signs_in_with_the_button_and_comes_to_the_account_page(hub: HubProcess) -> None:
    sync_api: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    name = new_name("real")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_context(bypass_csp=bool(AXE)).new_page()
        problems: list[str] = []

        def note(message: Any) -> None:
            if message.type in ("error", "warning") and page.url.startswith(hub.url):
                problems.append(message.text)

        page.on("console", note)

        def look() -> str:
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme=theme)
                if AXE:
                    page.add_script_tag(path=AXE)
                    run = "() => axe.run().then(all => all.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
                    assert page.evaluate(run) == [], page.url
            return str(page.inner_text("main"))

        def at_provider() -> None:
            page.wait_for_url(re.compile("/oauth2/authorize"))
            page.locator("[name='sub']").first.fill("linus")
            page.keyboard.press("Enter")

        page.goto(f"{hub.url}/login")
        look()
        page.get_by_role("button", name="Sign in with Example").click()
        at_provider()
        page.wait_for_url(re.compile("/register/openid"))
        look()
        page.locator("[name='name']").fill(name)
        page.get_by_role("button", name="Register").click()
        page.wait_for_url(re.compile("/account$"))
        assert "linus" in look()
        page.locator("form[action='/logout'] button").click()
        page.wait_for_url(re.compile("/login"))
        page.goto(f"{hub.url}/login?next=/account")
        page.get_by_role("button", name="Sign in with Example").click()
        at_provider()
        page.wait_for_url(re.compile("/account$"))
        assert name in look()
        page.get_by_role("button", name="Confirm with Example").click()
        at_provider()
        page.get_by_text("You have confirmed that it is you").wait_for()
        look()
        page.locator("[name='name']").fill(name)
        page.get_by_role("button", name="Delete the account").click()
        page.wait_for_url(f"{hub.url}/")
        assert problems == []
        chromium.close()
