"""`ludus publish`, `search`, `info`, `versions`, `yank`, `owners`, `keys` and `install` against a hub."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from hubs import (
    KEY,
    MODULE,
    OTHER_KEY,
    HubProcess,
    Release,
    WheelParts,
    new_name,
    project,
    published,
    release,
    upload,
)  # fmt: skip
from terminal import run_ludus_here

from ludus.registry.types.signing import public_key


@dataclass
class User:
    """A user with own keys and pins."""

    folder: Path
    hub: str

    def ludus(self, *arguments: str | Path, code: int = 0, **variables: str) -> str:
        """Run a command, check its exit code, and return what it prints; without success, its message."""
        done = self.run(*arguments, **variables)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    def run(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        settings = {
            "LUDUS_CONFIG_DIR": str(self.folder / "config"), "LUDUS_HUB": self.hub, "PIP_NO_CACHE_DIR": "1",
            "UV_NO_CACHE": "1", "COLUMNS": "200",
        }  # fmt: skip
        return run_ludus_here(*arguments, cwd=self.folder, variables={**settings, **variables})


@pytest.fixture
def user(tmp_path: Path, plain_hub: HubProcess) -> User:
    return User(tmp_path, plain_hub.url)


def installed(python: Path, distribution: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, timeout=60).stdout.strip()


def dropped(python: Path, distribution: str) -> None:
    uninstall = [str(python), "-m", "pip", "uninstall", "--yes", "--quiet", distribution]
    subprocess.run(uninstall, check=True, capture_output=True, timeout=60)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


slow = pytest.mark.suite("hub")

INSTALL = ("install", "--no-deps", "--python")


@pytest.mark.suite("hub")
def test_an_environment_is_published_found_and_installed(user: User, python: Path) -> None:
    name, owner = new_name(), new_name("owner")
    package, distribution = f"{owner}/{name}", f"{owner}-{name}"
    folder = project(
        user.folder / "coins", package,
        toml='tags = ["coin"]\nnetwork = ["api.example.org"]\n[[secrets]]\nname = "COIN_KEY"\n[[environments]]\n'
        'name = "toss"\nsplits = {train = 2}\ntools = ["say"]\nreward_range = [0.0, 1.0]\ndurability = "replay"\n',
    )  # fmt: skip
    git(folder, "init", "--quiet")
    git(folder, "remote", "add", "origin", "https://user:secret@git.example.org/alice/coins.git")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    printed = user.ludus("publish", folder, "--no-isolation", "--no-validate")
    assert f"Published {package} 1.0.0" in printed
    assert f"/{package}\n" in printed, "the address of its page"
    info = json.loads(user.ludus("info", package, "--json"))
    manifest = info["manifest"]
    assert manifest["provenance"] == {
        "repository": "https://git.example.org/alice/coins", "commit": git(folder, "rev-parse", "HEAD"), "dirty": False,
    }  # fmt: skip
    (entry,) = manifest["environments"]
    assert (entry["splits"][0]["count"], entry["tools"][0]["name"], entry["durability"]) == (2, "say", "replay")
    assert (manifest["license"], manifest["tags"], manifest["secrets"][0]["name"]) == ("MIT", ["coin"], "COIN_KEY")
    assert (info["card"], info["signature"]["key"]) == ("# Coins\n", user.ludus("keys", "show").splitlines()[0])
    assert package in user.ludus("search", name, "--tag", "coin")
    assert package not in user.ludus("search", name, "--tag", "dice")
    assert "1.0.0" in user.ludus("versions", package)
    assert "splits: train 2" in user.ludus("info", package)
    assert f"Installed {package} 1.0.0" in user.ludus(*INSTALL, python, package, "--installer", "pip")
    assert installed(python, distribution) == "1.0.0"
    assert owner in user.ludus("keys", "list")


@pytest.mark.parametrize(
    ("published_as", "version", "says"),
    [
        ("1.0.0", 'version = "1.0.0"', "has {package} 1.0.0 already: local published it on"),
        ("1.0.0", 'version = "1.0"', "1.0.0 already, which 1.0 is another spelling of: local published it on"),
    ],
)
def test_publish_asks_whether_the_version_exists_before_it_builds(
    user: User, plain_hub: HubProcess, published_as: str, version: str, says: str
) -> None:
    package = f"{new_name('owner')}/{new_name()}"
    with plain_hub.client() as client:
        published(client, release(package, published_as))
    folder = project(user.folder / "coins", package)
    pyproject = folder / "pyproject.toml"
    text = pyproject.read_text().replace('version = "1.0.0"', version)
    pyproject.write_text(text.replace('build-backend = "hatchling.build"', 'build-backend = "no.backend"'))
    message = user.ludus("publish", folder, "--no-isolation", code=3)
    assert says.format(package=package) in message
    assert "raise the version in pyproject.toml" in message
    assert "building" not in message


def test_publish_asks_before_it_validates_where_only_the_wheel_has_the_version(
    user: User, plain_hub: HubProcess
) -> None:
    package = f"{new_name('owner')}/{new_name()}"
    with plain_hub.client() as client:
        published(client, release(package))
    folder = project(user.folder / "coins", package)
    pyproject, module = folder / "pyproject.toml", package.replace("/", "_")
    (folder / f"{module}.py").write_text(f'__version__ = "1.0.0"\n{MODULE}')
    text = pyproject.read_text().replace('version = "1.0.0"', 'dynamic = ["version"]')
    pyproject.write_text(f'{text}\n[tool.hatch.version]\npath = "{module}.py"\n')
    message = user.ludus("publish", folder, "--no-isolation", code=3)
    assert f"has {package} 1.0.0 already" in message
    assert ("building" in message, "reading" in message, "validate" in message) == (True, False, False)


def test_the_same_wheel_is_published_again_without_an_error(user: User) -> None:
    package = f"{new_name('owner')}/{new_name()}"
    folder = project(user.folder / "coins", package)
    parts = WheelParts(package.replace("/", "-"))
    wheel = user.folder / parts.filename
    wheel.write_bytes(parts.pack())
    for _ in range(2):
        assert f"Published {package} 1.0.0" in user.ludus("publish", folder, "--wheel", wheel, "--no-validate")


def test_publish_warns_of_what_ludus_init_has_written(user: User) -> None:
    name = new_name("words")
    user.ludus("init", name, "--owner", new_name("owner"))
    done = user.run("publish", name, "--no-isolation", "--no-validate")
    assert done.returncode == 0, done.stderr
    for file in ("pyproject.toml", "ludus.toml", "README.md", f"{name}.py"):
        assert f"{name}/{file}:" in done.stderr
    assert done.stderr.count("the hub will show what `ludus init` wrote here") == 6
    assert "ludus init" not in done.stdout


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_an_installation_prints_its_own_lines_and_those_of_the_installer_only_if_it_fails(
    user: User, plain_hub: HubProcess, python: Path, installer: str
) -> None:
    owner = new_name("owner")
    good, bad = f"{owner}/{new_name()}", f"{owner}/{new_name()}"
    with plain_hub.client() as client:
        digest = published(client, release(good))["sha256"]
        parts = WheelParts(bad.replace("/", "-"))
        parts.metadata = f"Metadata-Version: 2.1\nName: {parts.name}\nVersion: 1.0.0\nRequires-Python: >=99\n"
        published(client, release(bad, parts=parts))
    done = user.run("install", "--no-deps", "--python", python, good, "--installer", installer)
    assert (done.returncode, done.stdout) == (0, f"Installed {good} 1.0.0 (sha256 {digest})\n")
    lines = [line for line in done.stderr.splitlines() if "trusting the key" not in line]
    assert lines == [f"installing {good} 1.0.0"]
    done = user.run("install", "--no-deps", "--python", python, bad, "--installer", installer)
    assert done.returncode != 0
    assert "Installed" not in done.stdout
    assert "99" in done.stderr, "the installer says that this Python is too old"
    assert f"{installer} could not install {bad} 1.0.0" in done.stderr


@slow
@pytest.mark.timeout(120)
def test_ludus_validate_runs_before_and_nothing_is_uploaded_when_it_fails(user: User) -> None:
    package = f"alice/{new_name()}"
    broken = MODULE.replace("reward=float(side == self.task.side)", "reward=7.0")
    folder = project(user.folder / "coins", package, module=broken)
    message = user.ludus("publish", folder, "--no-isolation", "--validate-option=-n2", code=3)
    assert "validate" in message
    assert "7" in message
    user.ludus("info", package, code=3)


@slow
@pytest.mark.parametrize(
    ("toml", "shown"),
    [
        ('surprise = "x"', "surprise"), ('version = "2.0.0"', "2.0.0"),
        ('description = "' + "x" * 101 + '"', "description"),
        ('card = "absent.md"', "absent.md"), ("tags = [1", "not TOML"), ('[[environments]]\nname = "other"', "other"),
        ('[[environments]]\nname = "toss"\nsplits = {train = 3}', "splits"), ('license = "GPL-3.0-only"', "license"),
    ],
)  # fmt: skip
def test_a_ludus_toml_that_is_wrong_or_contradicts_the_code_is_refused(user: User, toml: str, shown: str) -> None:
    package = f"alice/{new_name()}"
    folder = project(user.folder / "coins", package, toml=toml)
    assert shown in user.ludus("publish", folder, "--no-isolation", "--no-validate", code=3)
    user.ludus("info", package, code=3)


@slow
def test_a_folder_without_ludus_toml_or_with_another_distribution_is_refused(user: User) -> None:
    folder = project(user.folder / "coins", f"alice/{new_name()}")
    (folder / "ludus.toml").write_text('id = "alice/other"\n')
    assert "'alice-other'" in user.ludus("publish", folder, "--no-isolation", "--no-validate", code=3)
    (folder / "ludus.toml").unlink()
    assert "ludus.toml" in user.ludus("publish", folder, code=3)


@slow
def test_a_wheel_that_misses_a_module_is_found_before_it_is_published(user: User) -> None:
    folder = project(user.folder / "coins", f"alice/{new_name()}")
    (folder / "helper.py").write_text("x = 1\n")
    module = next(folder.glob("alice_*.py"))
    module.write_text("import helper\n" + MODULE)
    assert "helper" in user.ludus("publish", folder, "--no-isolation", "--no-validate", code=3)


def publish_here(client: httpx.Client, package: str, version: str = "1.0.0", **options: object) -> Release:
    one = release(package, version, **options)  # type: ignore[arg-type]
    published(client, one)
    return one


def test_ludus_install_refuses_a_tampered_wheel(user: User, plain_hub: HubProcess, python: Path) -> None:
    with plain_hub.client() as client:
        one = publish_here(client, f"alice/{new_name()}")
    blob = plain_hub.data / "blobs" / one.sha256[:2] / one.sha256
    blob.write_bytes(WheelParts(one.manifest.id.replace("/", "-"), module="raise SystemExit\n").pack())
    message = user.ludus(*INSTALL, python, one.manifest.id, code=3)
    assert "changed after it was published" in message
    assert installed(python, one.manifest.id.replace("/", "-")) == ""
    assert not (user.folder / "config" / "publishers.json").exists(), "a key is pinned only when all is right"


@slow
@pytest.mark.parametrize("column", ["manifest", "card", "sha256", "signed"])
def test_ludus_install_refuses_what_a_hub_has_changed(
    user: User, plain_hub: HubProcess, python: Path, column: str
) -> None:
    with plain_hub.client() as client:
        one = publish_here(client, f"alice/{new_name()}")
        two = publish_here(client, f"alice/{new_name()}")
    with closing(sqlite3.connect(plain_hub.data / "hub.sqlite")) as database, database:
        (value,) = database.execute(f"SELECT {column} FROM versions WHERE sha256 = ?", (one.sha256,)).fetchone()
        (other,) = database.execute(f"SELECT {column} FROM versions WHERE sha256 = ?", (two.sha256,)).fetchone()
        changed = {"manifest": value.replace("A coin.", "A die."), "card": value + "more"}.get(column, other)
        database.execute(f"UPDATE versions SET {column} = ? WHERE sha256 = ?", (changed, one.sha256))
    user.ludus(*INSTALL, python, one.manifest.id, code=3)
    assert installed(python, one.manifest.id.replace("/", "-")) == ""


@pytest.mark.suite("hub")
def test_a_publisher_whose_key_has_changed_is_refused_until_trusted(
    user: User, plain_hub: HubProcess, python: Path
) -> None:
    owner = new_name("owner")
    with plain_hub.client() as client:
        publish_here(client, f"{owner}/coin")
        user.ludus(*INSTALL, python, f"{owner}/coin")
        client.post(f"/api/v1/owners/{owner}/keys", json={"key": public_key(OTHER_KEY)})
        publish_here(client, f"{owner}/coin", "1.1.0", key=OTHER_KEY)
    assert public_key(OTHER_KEY) in user.ludus("keys", "published", owner)
    message = user.ludus(*INSTALL, python, f"{owner}/coin", code=3)
    assert f"ludus keys trust {owner} {public_key(OTHER_KEY)}" in message
    assert installed(python, f"{owner}-coin") == "1.0.0"
    user.ludus("keys", "trust", owner, public_key(OTHER_KEY))
    user.ludus(*INSTALL, python, f"{owner}/coin")
    assert installed(python, f"{owner}-coin") == "1.1.0"
    assert "has changed" in user.ludus(*INSTALL, python, f"{owner}/coin@1.0.0", code=3)
    user.ludus("keys", "forget", owner)
    user.ludus(*INSTALL, python, f"{owner}/coin@1.0.0")
    assert public_key(KEY) in user.ludus("keys", "list")


@slow
def test_an_unsigned_version_is_installed_only_with_a_flag(user: User, plain_hub: HubProcess, python: Path) -> None:
    one = release(f"alice/{new_name()}", key=None)
    with plain_hub.client() as client:
        assert upload(client, one).status_code == 200
    assert "--allow-unsigned" in user.ludus(*INSTALL, python, one.manifest.id, code=3)
    user.ludus(*INSTALL, python, one.manifest.id, "--allow-unsigned")
    assert installed(python, one.manifest.id.replace("/", "-")) == "1.0.0"


@pytest.mark.suite("hub")
@slow
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_lock_installs_the_same_bytes_later(user: User, plain_hub: HubProcess, python: Path, installer: str) -> None:
    name = new_name()
    distribution = f"alice-{name}"
    with plain_hub.client() as client:
        one = publish_here(client, f"alice/{name}")
        user.ludus(*INSTALL, python, f"alice/{name}", "--lock", "--installer", installer)
        lock = json.loads((user.folder / "ludus.lock").read_text())
        assert (lock["packages"][0]["sha256"], lock["packages"][0]["version"]) == (one.sha256, "1.0.0")
        publish_here(client, f"alice/{name}", "1.1.0")
        dropped(python, distribution)
        user.ludus(*INSTALL, python, "--locked", "--installer", installer)
        assert installed(python, distribution) == "1.0.0"
        user.ludus(*INSTALL, python, f"alice/{name}", "--lock", "--installer", installer)
        assert installed(python, distribution) == "1.1.0"
    blob = plain_hub.data / "blobs"
    sha256 = json.loads((user.folder / "ludus.lock").read_text())["packages"][0]["sha256"]
    (blob / sha256[:2] / sha256).write_bytes(WheelParts(distribution, "1.1.0", module="evil = 1\n").pack())
    dropped(python, distribution)
    user.ludus(*INSTALL, python, "--locked", "--installer", installer, code=5)
    assert installed(python, distribution) == ""


@slow
def test_a_lock_file_that_is_wrong_is_refused(user: User, python: Path) -> None:
    assert "`ludus lock OWNER/NAME` writes one" in user.ludus("install", "--locked", code=3)
    good = {
        "id": "alice/coin", "version": "1.0.0", "distribution": "alice-coin", "url": "https://h/a.whl",
        "sha256": "0" * 64, "key": None,
    }  # fmt: skip
    for change in (
        {"url": "file:///etc/passwd"}, {"url": "https://h/a b.whl"}, {"distribution": "--index-url"}, {"sha256": "no"},
        {"surprise": 1},
    ):  # fmt: skip
        (user.folder / "ludus.lock").write_text(json.dumps({"version": 1, "packages": [{**good, **change}]}))
        assert "is not a lock file" in user.ludus("install", "--locked", code=3)


@slow
def test_a_yanked_version_is_installed_only_by_name(user: User, plain_hub: HubProcess, python: Path) -> None:
    name = f"alice/{new_name()}"
    with plain_hub.client() as client:
        publish_here(client, name)
    assert "is yanked: wrong rewards" in user.ludus("yank", f"{name}@1.0.0", "--reason", "wrong rewards")
    assert "yanked: wrong rewards" in user.ludus("versions", name)
    assert f"{name}@1.0.0" in user.ludus(*INSTALL, python, name, code=3)
    user.ludus(*INSTALL, python, f"{name}@1.0.0")
    assert "not yanked any more" in user.ludus("yank", f"{name}@1.0.0", "--undo")
    user.ludus("yank", name, "--reason", "x", code=2)
    user.ludus("yank", f"{name}@1.0.0", code=2)


@pytest.mark.suite("hub")
def test_owners_are_listed_and_changed(user: User, plain_hub: HubProcess) -> None:
    name = f"alice/{new_name()}"
    with plain_hub.client() as client:
        publish_here(client, name)
    assert user.ludus("owners", name).split() == ["alice"]
    assert user.ludus("owners", name, "--add", "bob").split() == ["alice", "bob"]
    assert user.ludus("owners", name, "--remove", "bob").split() == ["alice"]
    assert "cannot be removed" in user.ludus("owners", name, "--remove", "alice", code=3)


def test_a_key_is_made_once_and_only_its_user_may_read_it(user: User) -> None:
    assert "ludus keys create" in user.ludus("keys", "show", code=3)
    first = user.ludus("keys", "create")
    assert user.ludus("keys", "create") == first
    path = user.folder / "config" / "publisher-key.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("nonsense")
    assert str(path) in user.ludus("keys", "show", code=3)
    assert "is not a public key" in user.ludus("keys", "trust", "alice", "x", code=3)
    (user.folder / "config" / "publishers.json").write_text("{")
    assert "publishers.json" in user.ludus("keys", "list", code=3)


@pytest.mark.suite("hub")
def test_what_cannot_be_found_or_reached_is_said(user: User, python: Path) -> None:
    assert "no environment" in user.ludus("info", "alice/absent", code=3)
    assert "owner/name" in user.ludus("versions", "absent", code=3)
    assert "cannot be reached" in user.ludus("search", "--hub", "http://127.0.0.1:1", code=4)
    assert "not the address" in user.ludus("search", "--hub", "nonsense", code=3)
    assert "OWNER/NAME" in user.ludus("install", "absent", code=3)


def test_publishing_without_the_extra_names_the_pip_command(user: User) -> None:
    """Without `cryptography`, the message has the command that installs it."""
    code = (
        "import sys; sys.modules['cryptography'] = None; from ludus.cli import main; "
        "sys.argv = ['ludus', 'keys', 'create']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
        env={**os.environ, "LUDUS_CONFIG_DIR": str(user.folder)},
    )  # fmt: skip
    assert (done.returncode, "pip install 'ludus-rl[registry]'" in done.stderr) == (6, True), done.stderr
