"""Who may do what on a hub with tokens, and where a hub refuses to start."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from hub_people import publish_private
from hubs import OTHER_KEY, HubProcess, kind_of, new_name, publish, published, release, upload
from terminal import run_ludus_here
from typer.testing import CliRunner
from waiting import block_until

from ludus.cli.app import app
from ludus.hub.seed import LIBRARY
from ludus.protocol.errors import Unauthenticated
from ludus.registry.credentials import save_token
from ludus.registry.types.errors import PackageNotFound
from ludus.registry.types.signing import public_key
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

SCOPES = ("tasks:read",)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A token file, and the tokens of alice, bob and an administrator."""
    made = {name: new_token(name, SCOPES if name != "root" else ("admin",)) for name in ("alice", "bob", "root")}
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    write_token_file(path, TokenFile(tokens=tuple(record for _, record in made.values())))
    return path, {name: token for name, (token, _) in made.items()}


@pytest.fixture(scope="module")
def guarded(tokens: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub with tokens."""
    process = HubProcess(tmp_path_factory.mktemp("guarded") / "data", "--no-seed", "--token-file", str(tokens[0]))
    yield process
    assert process.stop() == 0


@pytest.fixture
def alice(guarded: HubProcess, tokens: tuple[Path, dict[str, str]]) -> Iterator[httpx.Client]:
    with guarded.client(tokens[1]["alice"]) as client:
        yield client


@pytest.fixture
def bob(guarded: HubProcess, tokens: tuple[Path, dict[str, str]]) -> Iterator[httpx.Client]:
    with guarded.client(tokens[1]["bob"]) as client:
        yield client


@pytest.fixture
def stranger(guarded: HubProcess) -> Iterator[httpx.Client]:
    with guarded.client() as client:
        yield client


@pytest.mark.suite("hub")
def test_all_may_read_and_only_the_owner_may_publish(
    alice: httpx.Client, bob: httpx.Client, stranger: httpx.Client
) -> None:
    one = release(f"alice/{new_name()}")
    assert kind_of(publish(stranger, one)) == "Unauthenticated"
    assert kind_of(publish(bob, one)) == "Forbidden"
    assert kind_of(upload(stranger, one)) == "Unauthenticated"
    assert kind_of(upload(bob, one)) == "Forbidden"
    assert published(alice, one)["uploadedBy"] == "alice"
    assert stranger.get(f"/api/v1/environments/{one.manifest.id}").status_code == 200
    assert stranger.get(f"/index/simple/{one.manifest.id.replace('/', '-')}/").status_code == 200


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize(
    "header",
    ["Bearer nonsense", "Bearer", "Basic x", "Basic bm9ib2R5OnNlY3JldA==", "Digest a", "Bearer " + "x" * 5000],
)
def test_a_wrong_token_is_refused(stranger: httpx.Client, header: str) -> None:
    where = "/api/v1/environments/alice/coin/owners/bob"
    answer = stranger.put(where, headers={"authorization": header})
    assert (answer.status_code, kind_of(answer)) == (401, "Unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_twine_sends_the_token_as_the_password_of_the_user_token(
    guarded: HubProcess, tokens: tuple[Path, dict[str, str]]
) -> None:
    one = release(f"alice/{new_name()}")
    with httpx.Client(base_url=guarded.url, auth=("__token__", tokens[1]["alice"]), timeout=60) as client:
        assert upload(client, one).status_code == 200
    with httpx.Client(base_url=guarded.url, auth=("alice", tokens[1]["alice"]), timeout=60) as client:
        assert kind_of(upload(client, one)) == "Unauthenticated"


def test_an_owner_lets_another_one_publish_versions_of_one_package(alice: httpx.Client, bob: httpx.Client) -> None:
    name = f"alice/{new_name()}"
    published(alice, release(name))
    owners = f"/api/v1/environments/{name}/owners"
    yank = f"/api/v1/environments/{name}/versions/1.0.0/yank"
    assert kind_of(bob.put(f"{owners}/bob")) == "Forbidden"
    assert kind_of(bob.post(yank, json={"reason": "mine now"})) == "Forbidden"
    assert alice.put(f"{owners}/bob").json()["owners"] == ["alice", "bob"]
    assert published(bob, release(name, "1.1.0"))["uploadedBy"] == "bob"
    assert bob.post(yank, json={"reason": "old"}).status_code == 200
    assert kind_of(bob.delete(f"{owners}/alice")) == "Forbidden"
    assert kind_of(publish(bob, release(f"alice/{new_name()}"))) == "Forbidden"
    assert kind_of(alice.delete(f"{owners}/alice")) == "Conflict"
    assert alice.delete(f"{owners}/bob").json()["owners"] == ["alice"]
    assert kind_of(alice.delete(f"{owners}/bob")) == "PackageNotFound"
    assert kind_of(publish(bob, release(name, "1.2.0"))) == "Forbidden"
    assert kind_of(alice.put(f"{owners}/Not%20A%20Name")) == "NameRefused"


def test_only_the_owner_changes_keys(alice: httpx.Client, bob: httpx.Client) -> None:
    assert kind_of(bob.post("/api/v1/owners/alice/keys", json={"key": public_key(OTHER_KEY)})) == "Forbidden"
    assert kind_of(alice.post("/api/v1/owners/alice/keys", json={"key": "ed25519:short"})) == "InvalidParams"


@pytest.mark.suite("hub")
def test_a_revoked_token_may_not_publish_any_more(tmp_path: Path, tokens: tuple[Path, dict[str, str]]) -> None:
    token, record = new_token("carol", SCOPES)
    path = tmp_path / "tokens.json"
    write_token_file(path, TokenFile(tokens=(record,)))
    hub = HubProcess(tmp_path / "data", "--no-seed", "--token-file", str(path))
    try:
        with hub.client(token) as client:
            published(client, release("carol/coin"))
            write_token_file(path, TokenFile(tokens=()))
            block_until(lambda: publish(client, release("carol/coin", "1.1.0")).status_code == 401)
    finally:
        assert hub.stop() == 0


def test_metrics_need_a_token_and_health_does_not(alice: httpx.Client, stranger: httpx.Client) -> None:
    assert stranger.get("/health").json() == {"status": "ok"}
    assert kind_of(stranger.get("/metrics")) == "Unauthenticated"
    assert "ludus_hub_packages" in alice.get("/metrics").text


def test_the_api_is_described_as_openapi(plain_client: httpx.Client, plain_hub: HubProcess) -> None:
    described = plain_client.get("/api/openapi.json").json()
    assert {"/api/v1/environments", "/index/upload/", "/files/{sha256}/{filename}"} <= described["paths"].keys()
    assert "Warning" not in plain_hub.log()


def test_a_command_without_a_token_names_the_option(guarded: HubProcess, tmp_path: Path) -> None:
    done = run_ludus_here("owners", "alice/coin", "--add", "bob", "--hub", guarded.url, cwd=tmp_path)
    assert (done.returncode, "LUDUS_HUB_TOKEN" in done.stderr) == (3, True)
    assert "LUDUS_TOKEN" not in done.stderr


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize(
    "command",
    ["eval play {} --env env --model random", "info {}", "owners {}", "access {}", "org list"],
)
def test_every_command_takes_the_token_that_login_has_kept(
    guarded: HubProcess, alice: httpx.Client, tokens: tuple[Path, dict[str, str]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, command: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("LUDUS_HUB_TOKEN", raising=False)
    hidden = release(f"alice/{new_name()}")
    assert publish_private(alice, hidden).status_code == 201
    arguments = [*command.format(hidden.manifest.id).split(), "--hub", guarded.url]
    refused = PackageNotFound | Unauthenticated
    assert isinstance(CliRunner().invoke(app, arguments).exception, refused), "without a kept token"
    save_token(guarded.url, tokens[1]["alice"])
    found = CliRunner().invoke(app, arguments)
    assert not isinstance(found.exception, refused | SystemExit), found.output


@pytest.mark.suite("hub")
def test_a_hub_whose_key_was_lost_starts_and_says_what_it_cannot_publish(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "data")
    assert hub.stop() == 0
    (tmp_path / "data" / "hub-key.pem").unlink()
    with closing(sqlite3.connect(tmp_path / "data" / "hub.sqlite")) as database, database:
        change = "UPDATE versions SET version = '0.0.1', identity = '0.0.1' WHERE filename LIKE 'ludus_wordle%'"
        database.execute(change)
    hub.start()
    try:
        with hub.client() as client:
            assert client.get("/api/v1/environments").json()["total"] == len(LIBRARY)
    finally:
        assert hub.stop() == 0
    assert "ludus/wordle was not published" in hub.log()


def hub_command(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ludus.cli", "hub", "--data", str(tmp_path / "data"), "--port", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--host", "0.0.0.0"], "ludus hub accounts create NAME --admin"),
        (["--public-url", "https://hub.example.org"], "no tokens"),
        (["--token-file", "absent.json"], "absent.json"), (["--database", "mysql://x"], "postgresql://"),
        (["--public-url", "nonsense"], "--public"), (["--log-level", "LOUD"], "--log-level"),
        (["--rate", "token_minute"], "NAME=NUMBER"), (["--rate", "token_minute=0"], "--rate token_minute"),
        (["--rate", "nonsense=1"], "registrations_hour"), (["--registration", "maybe"], "--registration"),
        (["--database", "postgresql://nobody@127.0.0.1:1/none"], "database cannot be used"),
    ],
)  # fmt: skip
def test_a_hub_that_cannot_be_run_so_says_why(tmp_path: Path, options: list[str], shown: str) -> None:
    done = hub_command(tmp_path, *options)
    assert done.returncode in (2, 3, 5)
    assert shown in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["hub accounts create ada", "account login ada --hub http://127.0.0.1:1"])
def test_without_a_terminal_a_password_must_come_from_the_input(tmp_path: Path, command: str) -> None:
    done = run_ludus_here(*command.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert "--password-stdin" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.suite("hub")
def test_a_port_that_is_in_use_is_named(tmp_path: Path, guarded: HubProcess) -> None:
    done = hub_command(tmp_path, "--port", str(guarded.port))
    assert (done.returncode, "is in use" in done.stderr) == (3, True)
