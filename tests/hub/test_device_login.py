"""Signing in on a device: the way from the code to the token, the command, and attacks on both."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from hub_people import PASSWORD, PeopleHub, people_hub
from hub_sites import as_page
from hubs import HubProcess, new_name
from sqlalchemy import select, update
from terminal import run_ludus_here

from ludus.hub.core.rates import RateSettings
from ludus.hub.database.schema import METADATA
from ludus.hub.database.sign_in_tables import DeviceSignIn
from ludus.hub.people import access_tokens, device_sign_ins
from ludus.hub.people.device_sign_ins import CODE_LENGTH, INTERVAL, LASTS, LETTERS, UNKNOWN_CODE, new_code, normal_code
from ludus.hub.people.passwords import Passwords
from ludus.hub.settings.people import PeopleSettings
from ludus.protocol.errors import ConnectionFailed, DeadlineExceeded, ProtocolViolation, Unauthenticated
from ludus.registry.device_login import SLOWER_SECONDS, sign_in_on_device
from ludus.registry.types.people import (
    CreatedToken,
    DeviceAnswer,
    DeviceAuthorization,
    DeviceLogin,
    HubScope,
    TokenInfo,
)

BEGIN, TOKEN, PAGE = "/api/v1/login/device", "/api/v1/login/device/token", "/account/device"
WANTED = {"name": "ludus on laptop", "scopes": ["read", "publish"], "days": 30}


@pytest.fixture(scope="module")
def people(request: pytest.FixtureRequest, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    database = None if kind == "sqlite" else request.getfixturevalue("postgres").new_url()
    rates = RateSettings(logins_of_address=100_000, device_codes=1000, wrong_tokens_minute=100_000)
    with people_hub(tmp_path_factory.mktemp("device"), database, people=PeopleSettings(rates=rates)) as hub:
        quick = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        hub.hub.people.accounts._passwords = quick  # many people register here
        yield hub


@pytest.fixture
def person(people: PeopleHub) -> str:
    """A new account."""
    name = new_name("dev")
    people.hub.people.accounts.create(name, PASSWORD)
    return name


def begin(people: PeopleHub, **changes: Any) -> dict[str, Any]:
    answer = people.client.post(BEGIN, json={**WANTED, **changes})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ask(people: PeopleHub, begun: dict[str, Any]) -> httpx.Response:
    return people.client.post(TOKEN, json={"device_code": begun["device_code"]})


def send(browser: httpx.Client, code: str, **fields: str) -> httpx.Response:
    """Send the form of the page."""
    key = as_page(browser.get(PAGE)).hidden("form_key")
    return browser.post(PAGE, data={"form_key": key, "code": code, **fields})


def confirm(browser: httpx.Client, begun: dict[str, Any], decision: str = "confirm") -> None:
    assert send(browser, begun["user_code"]).status_code == 200
    assert send(browser, begun["user_code"], decision=decision).status_code == 200


def ended(answer: httpx.Response) -> str:
    """Why a sign-in has ended without a token."""
    assert answer.status_code in (401, 403), answer.text
    return str(answer.json()["error"]["data"]["error"])


def change(people: PeopleHub, begun: dict[str, Any], **values: Any) -> None:
    """Change the row of a sign-in."""
    digest = access_tokens.digest_of(begun["device_code"])
    with people.hub.database.writing() as session:
        session.execute(update(DeviceSignIn).where(DeviceSignIn.digest == digest).values(**values))


# ── the way ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("hub", first=1)
def test_a_person_confirms_a_code_and_the_device_gets_a_token_once(people: PeopleHub, person: str) -> None:
    begun = begin(people)
    assert begun["verification_uri"].endswith(PAGE)
    assert (begun["expires_in"], begun["interval"]) == (LASTS.total_seconds(), INTERVAL)
    browser = people.browser(person)
    assert ask(people, begun).json() == {"status": "authorization_pending", "created": None}
    shown = as_page(send(browser, begun["user_code"].lower().replace("-", " "))).text
    for part in (begun["user_code"], f"act as {person}", "ludus on laptop", "testclient", "30 days", "publish and yank",
                 "read your private packages", "they want your account"):  # fmt: skip
        assert part in " ".join(shown.split()), part
    assert "submit results" not in shown
    assert "Confirmed." in as_page(send(browser, begun["user_code"], decision="confirm")).text
    change(people, begun, asked_at=None)
    answer = ask(people, begun).json()
    created = answer["created"]
    assert (answer["status"], created["account"], created["info"]["scopes"]) == (
        "complete",
        person,
        ["publish", "read"],
    )
    left = datetime.fromisoformat(created["info"]["expiresAt"]) - datetime.now(UTC)
    assert timedelta(days=29) < left <= timedelta(days=30)
    assert people.as_(created["token"]).get("/api/v1/environments").status_code == 200
    assert "ludus on laptop" in as_page(browser.get("/account/tokens")).text
    assert ended(ask(people, begun)) == "expired_token"
    assert UNKNOWN_CODE.capitalize() in as_page(send(browser, begun["user_code"]), 404).text


def test_a_refused_device_gets_no_token(people: PeopleHub, person: str) -> None:
    begun, browser = begin(people), people.browser(person)
    confirm(browser, begun, "refuse")
    assert ended(ask(people, begun)) == "access_denied"
    assert ended(ask(people, begun)) == "expired_token", "it is forgotten"
    assert send(browser, begun["user_code"], decision="confirm").status_code == 404
    assert "You have no tokens" in as_page(browser.get("/account/tokens")).text


def test_a_device_that_asks_too_often_has_to_slow_down(people: PeopleHub, person: str) -> None:
    begun = begin(people)
    assert [ask(people, begun).json()["status"] for _ in range(2)] == ["authorization_pending", "slow_down"]
    change(people, begun, asked_at=datetime.now(UTC) - timedelta(seconds=INTERVAL))
    assert ask(people, begun).json()["status"] == "authorization_pending"


def test_the_log_and_the_export_have_the_sign_in_and_no_secret(people: PeopleHub, person: str) -> None:
    begun, browser = begin(people), people.browser(person)
    confirm(browser, begun)
    exported = browser.get("/account/export").text
    (kept,) = json.loads(exported)["deviceSignIns"]
    assert (kept["state"], kept["device"]["name"], kept["address"]) == ("confirmed", "ludus on laptop", "testclient")
    created = ask(people, begun).json()["created"]
    events = as_page(browser.get("/account/audit")).text
    assert "sign-in on a device confirmed" in events
    assert "ludus on laptop at testclient" in events
    assert "token created" in events
    everything = exported + browser.get("/account/export").text
    with people.hub.database.reading() as session:
        for table in METADATA.sorted_tables:
            everything += str(session.execute(select(table)).all())
    for secret in (begun["device_code"], begun["user_code"], created["token"]):
        assert secret not in everything


def test_a_deleted_account_leaves_no_sign_in(people: PeopleHub, person: str) -> None:
    begun, browser = begin(people), people.browser(person)
    confirm(browser, begun)
    key = as_page(browser.get("/account")).hidden("form_key")
    assert browser.post("/account/delete", data={"form_key": key, "name": person, "password": PASSWORD}).is_redirect
    assert ended(ask(people, begun)) == "expired_token"


# ── attacks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_link_with_a_code_fills_nothing_in_and_confirms_nothing(people: PeopleHub, person: str) -> None:
    begun, browser = begin(people), people.browser(person)
    for query in (f"code={begun['user_code']}", f"user_code={begun['user_code']}&decision=confirm"):
        assert begun["user_code"] not in browser.get(f"{PAGE}?{query}").text
    assert ask(people, begun).json()["status"] == "authorization_pending"


def test_a_code_of_a_device_elsewhere_comes_with_a_warning(people: PeopleHub, person: str) -> None:
    begun, near = begin(people), begin(people)
    change(people, begun, address="203.0.113.7")
    browser = people.browser(person)
    shown = " ".join(as_page(send(browser, begun["user_code"])).text.split())
    assert "The device is at another address than you." in shown
    assert "203.0.113.7 (you are at testclient)" in shown
    assert "another address than you" not in send(browser, near["user_code"]).text


def test_a_code_is_of_the_account_that_entered_it_first(people: PeopleHub, person: str) -> None:
    begun, browser, other = begin(people), people.browser(person), people.browser("bob")
    assert send(browser, begun["user_code"]).status_code == 200
    for fields in ({}, {"decision": "confirm"}, {"decision": "refuse"}):
        answer = send(other, begun["user_code"], **fields)
        wrong = send(other, "BBBB-BBBB", **fields)
        assert (answer.status_code, answer.text) == (404, wrong.text), "as if there were no such code"
    assert send(browser, begun["user_code"], decision="confirm").status_code == 200
    assert ask(people, begun).json()["created"]["account"] == person


def test_a_code_that_was_not_looked_at_cannot_be_confirmed(people: PeopleHub, person: str) -> None:
    begun = begin(people)
    assert send(people.browser(person), begun["user_code"], decision="confirm").status_code == 404
    assert ask(people, begun).json()["status"] == "authorization_pending"


def test_another_site_cannot_send_the_forms(people: PeopleHub, person: str) -> None:
    begun, browser = begin(people), people.browser(person)
    send(browser, begun["user_code"])
    for key in ("", "0" * 64):
        answer = browser.post(PAGE, data={"form_key": key, "code": begun["user_code"], "decision": "confirm"})
        assert answer.status_code == 403
    assert ask(people, begun).json()["status"] == "authorization_pending"
    assert "frame-ancestors 'none'" in browser.get(PAGE).headers["content-security-policy"]


def test_a_stranger_and_a_token_cannot_confirm(people: PeopleHub, person: str) -> None:
    begun, stranger = begin(people), people.browser()
    assert stranger.get(PAGE).headers["location"] == "/login?next=%2Faccount%2Fdevice"
    key = as_page(stranger.get("/login")).hidden("form_key")
    answer = stranger.post(PAGE, data={"form_key": key, "code": begun["user_code"], "decision": "confirm"})
    assert answer.status_code == 401
    bearer = people.of(person)
    assert bearer.post(PAGE, data={"code": begun["user_code"], "decision": "confirm"}).status_code == 403
    assert ask(people, begun).json()["status"] == "authorization_pending"


def test_codes_that_have_expired_are_worth_nothing(people: PeopleHub, person: str) -> None:
    waiting, confirmed, browser = begin(people), begin(people), people.browser(person)
    confirm(browser, confirmed)
    past = datetime.now(UTC) - timedelta(seconds=1)
    for one in (waiting, confirmed):
        change(people, one, expires_at=past)
        assert ended(ask(people, one)) == "expired_token"
        assert send(browser, one["user_code"]).status_code == 404
    begin(people)
    with people.hub.database.reading() as session:
        assert session.scalars(select(DeviceSignIn).where(DeviceSignIn.expires_at <= past)).all() == []


def test_guessing_codes_is_refused_after_a_few(tmp_path: Path) -> None:
    rates = RateSettings(device_codes=3)
    with people_hub(tmp_path, None, people=PeopleSettings(rates=rates)) as people:
        begun, browser = begin(people), people.browser("alice")
        assert [send(browser, new_code()).status_code for _ in range(3)] == [404, 404, 404]
        answer = send(browser, begun["user_code"])
        assert "Too many codes of devices" in as_page(answer, 429).text
        assert send(people.browser("bob"), begun["user_code"]).status_code == 200
    assert len(LETTERS) ** CODE_LENGTH > 2**34


def test_guessing_secrets_and_beginning_without_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = RateSettings(wrong_tokens_minute=2, logins_of_address=3)
    with people_hub(tmp_path, None, people=PeopleSettings(rates=rates)) as people:
        guesses = [people.client.post(TOKEN, json={"device_code": f"guess{n}"}).status_code for n in range(3)]
        assert guesses == [401, 401, 429]
        monkeypatch.setattr(device_sign_ins, "MOST", 2)
        begun = [people.client.post(BEGIN, json=WANTED).status_code for _ in range(4)]
        assert begun == [201, 201, 429, 429]


def test_a_confirmed_device_of_a_disabled_account_gets_nothing(people: PeopleHub, person: str) -> None:
    begun = begin(people)
    confirm(people.browser(person), begun)
    people.hub.people.accounts.set_disabled(person, disabled=True)
    assert ended(ask(people, begun)) == "access_denied"


def test_only_administrators_give_the_scope_admin(people: PeopleHub, person: str) -> None:
    begun, browser = begin(people, scopes=["admin"]), people.browser(person)
    assert "everything on the whole hub" in as_page(send(browser, begun["user_code"])).text
    assert "only administrators" in as_page(send(browser, begun["user_code"], decision="confirm"), 403).text
    assert ask(people, begun).json()["status"] == "authorization_pending"
    begun = begin(people, scopes=["admin"])
    confirm(people.browser("root"), begun)
    assert ask(people, begun).json()["created"]["info"]["scopes"] == ["admin"]


def test_an_account_with_too_many_tokens_gets_no_other(
    people: PeopleHub, person: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_tokens, "MOST_TOKENS", 0)
    begun = begin(people)
    confirm(people.browser(person), begun)
    answer = ask(people, begun)
    assert (answer.status_code, "revoke one first" in answer.text) == (409, True)


def test_of_requests_at_once_one_gets_the_token(people: PeopleHub, person: str) -> None:
    begun = begin(people)
    confirm(people.browser(person), begun)
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(people, begun).status_code)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answers) == [200, 401, 401, 401, 401, 401]


@pytest.mark.parametrize(
    "changes",
    [{"days": None}, {"days": 0}, {"days": 10**9}, {"scopes": []}, {"scopes": ["all"]}, {"name": "<script>"},
     {"name": "x" * 61}, {"account": "alice"}, {"packages": ["alice/x"]}],
)  # fmt: skip
def test_a_sign_in_of_another_form_is_refused(people: PeopleHub, changes: dict[str, Any]) -> None:
    assert people.client.post(BEGIN, json={**WANTED, **changes}).status_code == 400


@pytest.mark.parametrize("code", ["", "x", "😀" * 8, "\x00", "AEIO-UYYY", "B" * 5000, "' OR 1=1 --", "%00", "BBBB-BBB"])
def test_noise_instead_of_a_code_is_an_unknown_code(people: PeopleHub, person: str, code: str) -> None:
    answer = send(people.browser(person), code)
    assert as_page(answer, 404).text.count(UNKNOWN_CODE.capitalize()) == 1


def test_a_hub_without_accounts_begins_no_sign_in(tmp_path: Path) -> None:
    with people_hub(tmp_path, None, (), administrator=None) as people:
        answer = people.client.post(BEGIN, json=WANTED)
        assert (answer.status_code, "has no accounts" in answer.text) == (409, True)


def test_codes_are_read_with_any_case_and_separator() -> None:
    code = new_code()
    assert normal_code(code) == code
    for written in (code.lower(), f" {code.replace('-', '')} ", code.replace("-", " - ")):
        assert normal_code(written) == code


# ── the client and the command ─────────────────────────────────────────────────────────────────────────────────────


class Hub:
    """A hub that answers what a test wants."""

    def __init__(self, *answers: Any, address: str = "https://hub.example.org/account/device") -> None:
        self.answers = list(answers)
        self.waits: list[float] = []
        self.begun = DeviceAuthorization(
            device_code="secret", user_code="BBBB-BBBB", verification_uri=address, expires_in=600, interval=2
        )

    async def begin_device_login(self, wanted: DeviceLogin) -> DeviceAuthorization:
        return self.begun

    async def device_token(self, device_code: str) -> DeviceAnswer:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return DeviceAnswer(status=answer, created=CREATED if answer == "complete" else None)

    async def sign_in(self) -> CreatedToken:
        async def sleep(seconds: float) -> None:
            self.waits.append(seconds)

        wanted = DeviceLogin(name="x", scopes=(HubScope.READ,))
        return await sign_in_on_device(self, wanted, lambda begun: None, sleep)  # type: ignore[arg-type]


CREATED = CreatedToken(
    token="t", account="alice",
    info=TokenInfo(id=1, name="x", scopes=(), packages=(), created_at=datetime.now(UTC), expires_at=None, used_at=None),
)  # fmt: skip


async def test_the_client_waits_longer_when_it_asks_too_often_and_when_the_hub_is_away() -> None:
    hub = Hub("authorization_pending", "slow_down", ConnectionFailed("away"), "authorization_pending", "complete")
    assert await hub.sign_in() == CREATED
    assert hub.waits == [2, 2, 2 + SLOWER_SECONDS, 2 + 2 * SLOWER_SECONDS, 2 + 2 * SLOWER_SECONDS]


async def test_the_client_ends_when_the_sign_in_does() -> None:
    with pytest.raises(Unauthenticated):
        await Hub("authorization_pending", Unauthenticated("this sign-in has ended")).sign_in()
    with pytest.raises(ProtocolViolation, match="not one of HTTP"):
        await Hub(address="file:///etc/passwd").sign_in()


async def test_the_client_waits_no_longer_than_the_code_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda seconds: real(seconds - 600 - SLOWER_SECONDS))

    async def forever(seconds: float) -> None:
        await asyncio.Event().wait()

    hub: Any = Hub()
    with pytest.raises(DeadlineExceeded, match="within 10 minutes"):
        await sign_in_on_device(hub, DeviceLogin(name="x", scopes=(HubScope.READ,)), lambda begun: None, forever)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub process with the account alice."""
    data = tmp_path_factory.mktemp("command") / "data"
    create = ("hub", "accounts", "create", "alice", "--admin", "--password-stdin", "--data", data)
    assert run_ludus_here(*create, cwd=data.parent, input=PASSWORD).returncode == 0
    hub = HubProcess(data, "--no-seed")
    yield hub
    assert hub.stop() == 0


def command(hub: HubProcess, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "LUDUS_CONFIG_DIR": str(folder), "LUDUS_HUB": hub.url, "COLUMNS": "200"}
    variables.pop("LUDUS_HUB_TOKEN", None)
    return subprocess.Popen(
        [sys.executable, "-m", "ludus.cli", "account", *arguments], env=variables, text=True, cwd=folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@contextmanager
def signed_in(hub: HubProcess) -> Iterator[httpx.Client]:
    with hub.client() as browser:
        browser.headers["accept"] = "text/html"
        key = as_page(browser.get("/login")).hidden("form_key")
        browser.post("/login", data={"form_key": key, "name": "alice", "password": PASSWORD})
        yield browser


def code_of(running: subprocess.Popen[str], hub: HubProcess) -> str:
    """The code that the command prints, with the address."""
    assert running.stderr is not None
    assert running.stderr.readline() == f"Open {hub.url}{PAGE}\n"
    found = re.fullmatch(r"and enter the code (\w{4}-\w{4})\n", running.stderr.readline())
    assert found is not None
    return found[1]


@pytest.mark.suite("hub")
@pytest.mark.timeout(180)
def test_the_command_signs_in_and_keeps_the_token(process: HubProcess, tmp_path: Path) -> None:
    running = command(process, tmp_path, "login", "--web", "--days", "7", "--scope", "account")
    with signed_in(process) as browser:
        code = code_of(running, process)
        send(browser, code)
        assert "Confirmed." in send(browser, code, decision="confirm").text
    out, errors = running.communicate(timeout=60)
    assert (running.returncode, f"Signed in to {process.url} as alice" in out) == (0, True), errors
    listed, _ = command(process, tmp_path, "tokens").communicate(timeout=60)
    assert re.search(r"ludus on .*  account  until", listed), "it is used for other commands"


@pytest.mark.timeout(180)
def test_the_command_says_that_the_person_has_refused(process: HubProcess, tmp_path: Path) -> None:
    running = command(process, tmp_path, "login", "--web")
    with signed_in(process) as browser:
        code = code_of(running, process)
        send(browser, code)
        send(browser, code, decision="refuse")
    _, errors = running.communicate(timeout=60)
    assert running.returncode != 0
    assert "refused" in errors
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir()), "no token is kept"


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize("options", [(), ("alice", "--web"), ("--web", "--password-stdin"), ("--web", "--days", "0")])
def test_the_command_refuses_options_that_contradict_each_other(
    process: HubProcess, tmp_path: Path, options: tuple[str, ...]
) -> None:
    running = command(process, tmp_path, "login", *options)
    _, errors = running.communicate(timeout=60)
    assert (running.returncode, "--web" in errors) == (2, True)
