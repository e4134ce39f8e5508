"""A private environment from account to installation, with the real programs: ludus, pip, uv and twine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hubs import HubProcess, WheelParts, release
from terminal import run_ludus_here
from waiting import block_until

PASSWORD = "correct horse battery"

pytestmark = pytest.mark.timeout(180)


@dataclass
class Person:
    """A person with a configuration folder of their own."""

    folder: Path
    hub: str

    def ludus(self, *arguments: str | Path, said: str = "", code: int = 0) -> str:
        """Run a command, check its exit code, and return what it prints; without success, its message."""
        self.folder.mkdir(exist_ok=True)
        done = run_ludus_here(*arguments, cwd=self.folder, input=said, variables=self.variables)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    @property
    def variables(self) -> dict[str, str]:
        return {"LUDUS_CONFIG_DIR": str(self.folder), "LUDUS_HUB": self.hub, "COLUMNS": "200", "UV_NO_CACHE": "1"}


def run(
    *arguments: str | Path, said: str = "", program: str | Path = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *map(str, arguments)], input=said, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables},
    )  # fmt: skip


def accounts(*arguments: str | Path, said: str = "") -> subprocess.CompletedProcess[str]:
    return run_ludus_here("hub", "accounts", *arguments, cwd=Path.cwd(), input=said)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub whose accounts the operator has created before it started, and while it runs."""
    data = tmp_path_factory.mktemp("private") / "data"
    done = accounts("create", "root", "--admin", "--password-stdin", "--data", data, said=PASSWORD)
    assert done.returncode == 0, done.stderr
    process = HubProcess(data, "--no-seed")
    for name in ("alice", "bob", "carol"):
        done = accounts("create", name, "--password-stdin", "--data", data, said=PASSWORD)
        assert f"Created the account {name}" in done.stdout
    listed = accounts("list", "--data", data).stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["alice", "bob", "carol", "root"]
    yield process
    assert process.stop() == 0


def person(hub: HubProcess, folder: Path, name: str) -> Person:
    """A person who has signed in."""
    found = Person(folder / name, hub.url)
    printed = found.ludus("account", "login", name, "--password-stdin", said=f"{PASSWORD}\n")
    assert PASSWORD not in printed
    return found


def project(folder: Path, package: str) -> tuple[Path, Path]:
    """A folder with `ludus.toml` that says private, and its wheel."""
    folder.mkdir()
    parts = WheelParts(package.replace("/", "-"))
    (folder / "ludus.toml").write_text(f'id = "{package}"\nprivate = true\n')
    (folder / parts.filename).write_bytes(parts.pack())
    return folder, folder / parts.filename


def version_in(python: Path, distribution: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    return run("-c", code, program=python).stdout.strip()


def uninstall(python: Path, distribution: str) -> None:
    assert run("-m", "pip", "uninstall", "--yes", distribution, program=python).returncode == 0


@pytest.mark.suite("hub")
def test_a_private_environment_is_published_hidden_and_installed_by_its_readers(
    hub: HubProcess, python: Path, tmp_path: Path
) -> None:
    alice, bob = person(hub, tmp_path, "alice"), person(hub, tmp_path, "bob")
    stranger = Person(tmp_path / "stranger", hub.url)
    folder, wheel = project(tmp_path / "coins", "alice/coins")
    assert "(private)" in alice.ludus("publish", folder, "--wheel", wheel, "--no-validate")
    for other, command in ((bob, ["install", "--python", python]), (bob, ["versions"]), (stranger, ["info"])):
        assert "there is no environment 'alice/coins'" in other.ludus(*command, "alice/coins", code=3)
    assert "alice/coins" not in bob.ludus("search", "coin")
    assert "alice/coins 1.0.0  [private]" in alice.ludus("search", "coin")
    assert "reader: bob" in alice.ludus("access", "alice/coins", "--add-reader", "bob")
    for installer in ("pip", "uv"):
        bob.ludus("install", "alice/coins", "--python", python, "--no-deps", "--installer", installer)
        assert version_in(python, "alice-coins") == "1.0.0"
        uninstall(python, "alice-coins")
    assert "visibility: private" in bob.ludus("info", "alice/coins")
    assert "is public" in alice.ludus("access", "alice/coins", "--public")
    assert "visibility: public" in stranger.ludus("info", "alice/coins")
    bob.ludus("account", "logout")
    assert "LUDUS_HUB_TOKEN" in bob.ludus("account", "show", code=3)


@pytest.mark.suite("hub")
def test_pip_uv_and_twine_use_a_token_with_its_basic_credentials(hub: HubProcess, python: Path, tmp_path: Path) -> None:
    bob = person(hub, tmp_path, "bob")
    folder, wheel = project(tmp_path / "dice", "bob/dice")
    bob.ludus("publish", folder, "--wheel", wheel, "--no-validate")
    token = bob.ludus("account", "create-token", "reader", "--package", "bob/dice").strip()
    publisher = bob.ludus("account", "create-token", "ci", "--scope", "publish").strip()
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert uv is not None
    open_index = f"{hub.url}/index/bob/simple/"
    index = open_index.replace("://", f"://__token__:{token}@")
    options = ("install", "--no-deps", "-U", "bob-dice")
    assert run("-m", "pip", *options, "--index-url", open_index, program=python).returncode != 0
    done = run("-m", "pip", *options, "--index-url", index, program=python)
    assert done.returncode == 0, done.stderr
    assert version_in(python, "bob-dice") == "1.0.0"
    newer = release("bob/dice", "1.1.0", key=None)
    (tmp_path / newer.filename).write_bytes(newer.wheel)
    upload = ("-m", "twine", "upload", "--non-interactive", "--repository-url", f"{hub.url}/index/upload/")
    refused = run(*upload, "-u", "__token__", "-p", token, tmp_path / newer.filename)
    assert refused.returncode != 0, "a token that reads does not publish"
    done = run(*upload, "-u", "__token__", "-p", publisher, tmp_path / newer.filename)
    assert done.returncode == 0, done.stdout
    uninstall(python, "bob-dice")  # uv would take what is there for the newest
    uv_install = ("pip", *options, "--python", python, "--default-index")
    assert run(*uv_install, open_index, program=uv, UV_NO_CACHE="1").returncode != 0
    done = run(*uv_install, index, program=uv, UV_NO_CACHE="1")
    assert done.returncode == 0, done.stderr
    assert version_in(python, "bob-dice") == "1.1.0"


@pytest.mark.suite("hub")
def test_the_operator_disables_an_account_and_its_tokens_stop(hub: HubProcess, tmp_path: Path) -> None:
    carol = person(hub, tmp_path, "carol")
    assert "carol, since" in carol.ludus("account", "show")
    assert accounts("disable", "carol", "--data", hub.data).returncode == 0
    done = accounts("list", "--data", hub.data)
    assert "carol" in done.stdout
    assert "disabled" in done.stdout
    show = partial(run_ludus_here, "account", "show", cwd=tmp_path, variables=carol.variables)
    block_until(lambda: show().returncode == 3)  # a running hub looks a token up again after a second
    assert "not known to the hub" in carol.ludus("account", "show", code=3)
    refused = accounts("disable", "root", "--data", hub.data)
    assert "last administrator" in refused.stderr
    assert accounts("enable", "carol", "--data", hub.data).returncode == 0
    assert "token created" in carol.ludus("account", "audit")
    exported = tmp_path / "me.json"
    carol.ludus("account", "export", "--out", exported)
    assert "carol" in exported.read_text()
    assert "not of 'alice'" in carol.ludus("account", "delete", "alice", "--password-stdin", said=PASSWORD, code=3)
    carol.ludus("account", "delete", "carol", "--password-stdin", said=PASSWORD)
    refused = accounts("create", "carol", "--password-stdin", "--data", hub.data, said=PASSWORD)
    assert "is taken" in refused.stderr
