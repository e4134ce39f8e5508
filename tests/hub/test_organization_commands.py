"""`ludus org`, and a package of an organization from `ludus publish` to a checked install, against a real hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hubs import HubProcess, project

from ludus.registry import Pins, RegistryClient, verify
from ludus.registry.types.errors import KeyChanged

pytestmark = [pytest.mark.suite("hub"), pytest.mark.timeout(600)]

PASSWORD = "correct horse battery"
PEOPLE = ("root", "alice", "bob")


class Person:
    """A person with a folder, a key and a token of their own."""

    def __init__(self, name: str, folder: Path, hub: HubProcess) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.hub = hub
        self.ludus("account", "login", name, "--password-stdin", text=PASSWORD)

    def ludus(self, *arguments: str | Path, code: int = 0, text: str = "") -> str:
        """Run a command, check its exit code, and return what it prints; without success, its message."""
        settings = {"LUDUS_CONFIG_DIR": str(self.folder / "config"), "LUDUS_HUB": self.hub.url, "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-m", "ludus.cli", *map(str, arguments)], cwd=self.folder, input=text,
            capture_output=True, text=True, timeout=240, env={**os.environ, **settings},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    """A hub with three accounts."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "ludus.cli", "hub", "accounts", "create"]
    for name in PEOPLE:
        admin = ["--admin"] if name == "root" else []
        create = [*command, name, *admin, "--password-stdin", "--data", str(data)]
        subprocess.run(create, input=PASSWORD, text=True, check=True, timeout=60, capture_output=True)
    process = HubProcess(data, "--no-seed")
    yield process
    assert process.stop() == 0


async def test_two_members_publish_with_keys_of_their_own_and_a_client_checks_both(
    hub: HubProcess, tmp_path: Path
) -> None:
    alice, bob = (Person(name, tmp_path, hub) for name in ("alice", "bob"))
    assert "Created the organization acme" in alice.ludus("org", "create", "acme")
    alice.ludus("org", "invite", "acme", "bob", "--role", "publisher")
    assert "acme  invited by alice as publisher" in bob.ludus("org", "list")
    assert "as publisher" in bob.ludus("org", "accept", "acme")

    coin = project(tmp_path / "coin", "acme/coin")
    alice.ludus("publish", coin, "--no-validate", "--no-isolation")
    project(tmp_path / "coin", "acme/coin", "1.1.0")
    publish = ("publish", coin, "--no-validate", "--no-isolation")
    key = bob.ludus("keys", "create").split()[0]
    assert f"ludus keys register acme --key {key}" in bob.ludus(*publish, code=3)
    assert key in alice.ludus("keys", "register", "acme", "--key", key)
    assert "Published acme/coin 1.1.0" in bob.ludus(*publish)

    pins = Pins(tmp_path / "pins.json")
    async with RegistryClient(hub.url) as client:
        assert (await verify(client, "acme/coin@1.0.0", pins)).pinned
        with pytest.raises(KeyChanged):
            await verify(client, "acme/coin", pins)
        first = alice.ludus("keys", "show").split()[0]
        pins.trust(hub.url, "acme", first, key)
        for version in ("1.0.0", "1.1.0"):
            found = await verify(client, f"acme/coin@{version}", pins)
            assert (found.info.version, found.pinned) == (version, False)

    alice.ludus("org", "remove", "acme", "bob")
    project(tmp_path / "coin", "acme/coin", "1.2.0")
    assert "may not publish acme/coin" in bob.ludus(*publish, code=3)


def test_an_organization_from_its_creation_to_its_end(hub: HubProcess, tmp_path: Path) -> None:
    alice, bob = (Person(name, tmp_path, hub) for name in ("alice", "bob"))
    alice.ludus("org", "create", "acme")
    assert "there is no organization 'acme'" in bob.ludus("org", "show", "acme", code=3)
    alice.ludus("org", "invite", "acme", "bob")
    bob.ludus("org", "decline", "acme")
    assert "bob  invited as reader by alice" in alice.ludus("org", "show", "acme")
    alice.ludus("org", "cancel", "acme", "bob")
    alice.ludus("org", "invite", "acme", "bob")
    bob.ludus("org", "accept", "acme")
    assert "bob  reader" in bob.ludus("org", "show", "acme")
    assert "only the owners" in bob.ludus("org", "role", "acme", "bob", "owner", code=3)
    alice.ludus("org", "role", "acme", "bob", "owner")
    assert "to all" in bob.ludus("org", "public", "acme")
    assert "to its members only" in bob.ludus("org", "public", "acme", "--off")
    actions = [line.split("  ")[2] for line in alice.ludus("org", "audit", "acme").splitlines()]
    assert actions[:2] == ["organization made private", "organization made public"]
    assert "You have left acme" in alice.ludus("org", "leave", "acme")
    assert "last owner" in bob.ludus("org", "leave", "acme", code=3)
    assert "--yes" in bob.ludus("org", "delete", "acme", code=2)
    assert "Deleted the organization acme" in bob.ludus("org", "delete", "acme", "--yes")
    assert json.loads(bob.ludus("org", "list", "--json"))["organizations"] == []
    assert "is taken" in alice.ludus("org", "create", "acme", code=3)
