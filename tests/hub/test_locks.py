"""`ludus lock` and `ludus install --lock`: everything with digests, changed wheels, and names on both indexes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hubs import HubProcess, new_name, published, release
from package_index import PackageIndex, wheel
from terminal import run_ludus_here

from ludus.protocol.errors import InvalidParams
from ludus.registry import installing, resolving
from ludus.registry.installing import find_uv
from ludus.registry.lock import Lock, LockedDependency, LockedPackage, LockFileUnusable, read_lock
from ludus.registry.resolving import check_index, install_lock, parse_compiled, plain_environment, resolve
from ludus.registry.types.errors import InstallFailed

slow = pytest.mark.suite("hub")
pytestmark = pytest.mark.timeout(120)
SHA = "0" * 64


@pytest.fixture
def index(tmp_path: Path) -> Iterator[PackageIndex]:
    """An index in place of the public one."""
    made = PackageIndex(tmp_path / "index")
    yield made
    made.stop()


@dataclass
class World:
    """A hub, an index, and a user with an empty virtual environment."""

    folder: Path
    hub: HubProcess
    index: PackageIndex
    python: Path

    def ludus(self, *arguments: str | Path, code: int = 0, more: dict[str, str] | None = None) -> str:
        settings = {
            "LUDUS_CONFIG_DIR": str(self.folder / "config"), "LUDUS_HUB": self.hub.url, "COLUMNS": "200",
            "UV_CACHE_DIR": str(self.folder / "cache"), "PIP_NO_CACHE_DIR": "1", "LUDUS_PACKAGE_INDEX": self.index.url,
        }  # fmt: skip
        done = run_ludus_here(*arguments, cwd=self.folder, variables={**settings, **(more or {})})
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    def publish(self, package: str, *requires: str, version: str = "1.0.0") -> str:
        parts = wheel(package.replace("/", "-"), version, requires)
        with self.hub.client() as client:
            return str(published(client, release(package, version, parts=parts))["sha256"])

    def installed(self) -> dict[str, str]:
        code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
        done = subprocess.run([str(self.python), "-c", code], capture_output=True, text=True, timeout=60, check=True)
        return {name: version for name, version in json.loads(done.stdout).items() if name not in ("pip", "setuptools")}

    def emptied(self) -> None:
        uv = find_uv()
        assert uv is not None
        command = [uv, "pip", "uninstall", "-q", "--python", str(self.python), *self.installed()]
        subprocess.run(command, check=True, timeout=60)

    @property
    def lock(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "ludus.lock").read_text())
        return found


def venv(folder: Path, *options: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", *options, str(folder)], check=True, timeout=60)
    return folder / "bin" / "python"


@pytest.fixture
def world(tmp_path: Path, plain_hub: HubProcess, index: PackageIndex) -> World:
    return World(tmp_path, plain_hub, index, venv(tmp_path / "v", "--without-pip"))


def names() -> tuple[str, str, str]:
    """A package, and two distributions of the index, which no other test uses."""
    return f"alice/{new_name()}", new_name("cards"), new_name("dice")


@pytest.mark.suite("hub")
def test_a_lock_has_everything_with_digests_and_installs_exactly_that(world: World) -> None:
    package, cards, dice = names()
    first, second = world.index.put(cards, requires=[f"{dice}>=1"]), world.index.put(dice)
    other = world.index.put(new_name("win"))
    windows = f"{cards}; sys_platform == 'win32'"
    own = world.publish(package, cards, windows)
    assert "Locked 2 dependencies" in world.ludus("lock", package)
    assert world.installed() == {}, "locking installs nothing"
    assert [(one["id"], one["sha256"]) for one in world.lock["packages"]] == [(package, own)]
    locked = {one["name"]: one["hashes"] for one in world.lock["dependencies"]}
    assert locked == {cards: [first], dice: [second]}
    assert other not in json.dumps(world.lock)
    world.index.put(dice, "2.0.0")  # newer versions change nothing
    world.publish(package, version="2.0.0")
    world.ludus("install", "--locked", "--python", world.python, "--installer", "uv")
    distribution = package.replace("/", "-")
    assert world.installed() == {distribution: "1.0.0", cards: "1.0.0", dice: "1.0.0"}
    world.ludus("lock")
    assert {one["version"] for one in world.lock["dependencies"]} == {"1.0.0"}, "what fits stays"
    world.ludus("lock", "--upgrade")
    assert {one["name"]: one["version"] for one in world.lock["dependencies"]}[dice] == "2.0.0"


def test_a_dependency_that_an_attacker_has_put_on_the_public_index_is_refused(world: World) -> None:
    package, _, _ = names()
    shared = f"bob/{new_name()}"
    name = shared.replace("/", "-")
    own = world.publish(shared)
    world.publish(package, name)
    world.index.put(name, "99.0.0", module="evil = True\n")
    message = world.ludus("install", package, "--lock", "--python", world.python, code=5)
    assert f"--from-index {name}" in message
    assert not (world.folder / "ludus.lock").exists()
    assert world.installed() == {}
    world.ludus("install", package, shared, "--lock", "--python", world.python)
    assert world.installed()[name] == "1.0.0", "that of the hub, although the index has a newer one"
    assert {one["id"]: one["sha256"] for one in world.lock["packages"]}[shared] == own
    assert world.lock["dependencies"] == []


@slow
def test_a_name_like_one_of_the_owner_is_refused_even_if_the_hub_does_not_show_it(world: World) -> None:
    package, _, _ = names()
    hidden = f"alice-{new_name()}"  # which could be private
    world.index.put(hidden, module="evil = True\n")
    world.publish(package, hidden)
    assert "may not show you" in world.ludus("lock", package, code=5)
    world.ludus("lock", package, "--from-index", hidden)
    world.ludus("lock")
    assert world.lock["from_index"] == [hidden], "the answer is kept"


@slow
def test_a_package_of_the_hub_that_is_only_there_is_named_in_the_refusal(world: World) -> None:
    package, _, _ = names()
    shared = f"bob/{new_name()}"
    world.publish(shared)
    world.publish(package, shared.replace("/", "-"))
    assert "is on the hub: add it" in world.ludus("lock", package, code=5)


@slow
def test_a_package_itself_never_comes_from_another_index(world: World) -> None:
    package, cards, _ = names()
    name = package.replace("/", "-")
    world.publish(package, cards)
    world.index.put(cards)
    world.index.put(name, "99.0.0", module="evil = True\n")
    evil = PackageIndex(world.folder / "evil")
    for one in (name, cards):
        evil.put(one, "98.0.0", module="evil = True\n")
    (world.folder / "uv.toml").write_text(f'[[index]]\nurl = "{evil.url}"\n')
    sneaky = {"UV_EXTRA_INDEX_URL": evil.url, "UV_INDEX": evil.url, "PIP_EXTRA_INDEX_URL": evil.url,
              "UV_INDEX_STRATEGY": "unsafe-best-match", "UV_NO_VERIFY_HASHES": "1",
              "UV_CONFIG_FILE": str(world.folder / "uv.toml")}  # fmt: skip
    world.ludus("install", package, "--lock", "--python", world.python, more=sneaky)
    evil.stop()
    assert world.installed() == {name: "1.0.0", cards: "1.0.0"}


@slow
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_changed_wheel_of_the_index_or_the_hub_is_refused(world: World, installer: str) -> None:
    package, cards, dice = names()
    own = world.publish(package, cards)
    for name in (cards, dice):
        world.index.put(name)
    world.python = venv(world.folder / "w")
    install = ("install", "--locked", "--python", world.python, "--installer", installer)
    fresh = {"UV_CACHE_DIR": str(world.folder / "fresh")}
    world.ludus("lock", package)
    world.index.change(cards)
    world.ludus(*install, code=5, more=fresh)
    assert world.installed() == {}
    world.index.put(cards)
    world.ludus(*install, more=fresh)
    assert world.installed()[cards] == "1.0.0"
    world.emptied()
    blob = world.hub.data / "blobs" / own[:2] / own
    blob.write_bytes(wheel(package.replace("/", "-"), module="evil = True\n").pack())
    world.ludus(*install, code=5, more={"UV_CACHE_DIR": str(world.folder / "other")})
    assert world.installed() == {}


@slow
def test_what_is_locked_is_installed_again_without_any_connection(world: World) -> None:
    package, cards, _ = names()
    world.publish(package, cards)
    world.index.put(cards)
    world.ludus("install", package, "--lock", "--python", world.python)
    world.emptied()
    world.index.drop(cards)
    world.index.stop()
    nowhere = {"LUDUS_HUB": "http://127.0.0.1:1"}
    world.ludus("install", "--locked", "--python", world.python, "--offline", more=nowhere)
    assert world.installed() == {package.replace("/", "-"): "1.0.0", cards: "1.0.0"}
    world.emptied()
    empty = {"UV_CACHE_DIR": str(world.folder / "empty"), **nowhere}
    world.ludus("install", "--locked", "--python", world.python, "--offline", code=5, more=empty)
    assert "--locked" in world.ludus("install", package, "--offline", code=2)


@slow
def test_two_locked_packages_share_one_resolution(world: World) -> None:
    (one, cards, _), other = names(), f"carol/{new_name()}"
    world.index.put(cards, "1.0.0")
    world.index.put(cards, "2.0.0")
    world.publish(one, cards)
    world.publish(other, f"{cards}<2")
    world.ludus("lock", one)
    assert [each["version"] for each in world.lock["dependencies"]] == ["2.0.0"]
    world.ludus("lock", other)
    assert [each["version"] for each in world.lock["dependencies"]] == ["1.0.0"]
    assert {each["id"] for each in world.lock["packages"]} == {one, other}
    impossible = f"dave/{new_name()}"
    world.publish(impossible, f"{cards}>=2")
    before = world.lock
    assert "no versions that fit" in world.ludus("lock", impossible, code=5)
    assert world.lock == before


def test_without_uv_locking_says_that_it_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (installing, resolving):
        monkeypatch.setattr(module, "find_uv", lambda: None)
    one = LockedPackage(
        id="alice/coin", version="1", distribution="alice-coin", url="https://h/a.whl", sha256=SHA, key=None
    )
    with pytest.raises(InstallFailed, match="needs uv"):
        asyncio.run(resolve([one], index="https://i/simple", hub_names=()))
    lock = Lock(packages=[one], index="https://i/simple", dependencies=[])
    with pytest.raises(InstallFailed, match="only uv"):
        asyncio.run(install_lock(lock, offline=True))
    with pytest.raises(InstallFailed, match="there is no uv"):
        asyncio.run(install_lock(lock, installer="uv"))


DEPENDENCY = {"name": "cards", "version": "1.0", "hashes": [SHA]}


@pytest.mark.parametrize(
    "change",
    [
        {"name": "--index-url"}, {"name": "Cards"}, {"name": "cards --hash"}, {"version": "1.0 --extra-index-url=h"},
        {"version": "1.0\nevil"}, {"hashes": []}, {"hashes": ["0"]}, {"hashes": [f"{SHA} --pre"]},
        {"marker": "sys_platform == 'x'\nevil==1"}, {"marker": "sys_platform == 'x' --index-url http://h"},
        {"marker": "nonsense"}, {"marker": "os_name == '#'"}, {"surprise": 1},
    ],
)  # fmt: skip
def test_a_lock_file_cannot_pass_options_to_an_installer(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "ludus.lock"
    whole = {"version": 1, "packages": [], "index": "https://i/simple", "dependencies": [DEPENDENCY]}
    path.write_text(json.dumps(whole))
    assert list(read_lock(path).requirements()) == [f"cards==1.0 --hash=sha256:{SHA}\n"]
    path.write_text(json.dumps({**whole, "dependencies": [{**DEPENDENCY, **change}]}))
    with pytest.raises(LockFileUnusable):
        read_lock(path)


@pytest.mark.parametrize("index", ["file:///etc", "https://i/simple --pre", "https://u:p@i/simple", "i", "https://i?a"])
def test_an_index_is_an_address_without_credentials(tmp_path: Path, index: str) -> None:
    with pytest.raises(InvalidParams, match="--index"):
        check_index(index)
    path = tmp_path / "ludus.lock"
    path.write_text(json.dumps({"version": 1, "packages": [], "index": index, "dependencies": []}))
    with pytest.raises(LockFileUnusable):
        read_lock(path)


def test_only_versions_of_an_index_with_digests_are_locked() -> None:
    root = LockedPackage(
        id="alice/coin", version="1", distribution="alice-coin", url="https://h/a.whl", sha256=SHA, key=None
    )
    good = f"{root.requirement} \\\n    --hash=sha256:{SHA}\ncards==1.0 ; os_name == 'nt' \\\n    --hash=sha256:{SHA}\n"
    (found,) = parse_compiled(good, [root])
    assert found == LockedDependency(name="cards", version="1.0", hashes=[SHA], marker='os_name == "nt"')
    for bad in (
        "cards==1.0\n", f"cards>=1.0 --hash=sha256:{SHA}\n", f"cards @ https://evil/c.whl --hash=sha256:{SHA}\n",
        f"alice-coin==2 --hash=sha256:{SHA}\n", f"alice-coin @ https://evil/a.whl --hash=sha256:{SHA}\n",
        f"{root.requirement} --hash=sha256:{'1' * 64}\n", "not a requirement\n",
    ):  # fmt: skip
        with pytest.raises(InstallFailed):
            list(parse_compiled(bad, [root]))


def test_installers_see_no_variable_that_adds_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL", "UV_NO_VERIFY_HASHES", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("UV_CACHE_DIR", "/c")
    found = plain_environment({"NETRC": "/n"})
    assert {name for name in found if name.startswith(("UV_", "PIP_"))} <= {*resolving._HARMLESS, "PIP_CONFIG_FILE"}
    assert (found["UV_CACHE_DIR"], found["NETRC"]) == ("/c", "/n")
