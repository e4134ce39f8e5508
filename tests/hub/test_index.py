"""The package index, with real pip, uv and twine, unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hubs import HubProcess, Release, WheelParts, new_name, published, release, upload

JSON = {"accept": "application/vnd.pypi.simple.v1+json"}


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program without settings that could add other indexes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "TWINE_"))}
    settings = {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}
    return subprocess.run(
        [str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        env={**kept, **settings, **variables},
    )  # fmt: skip


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty virtual environment with pip."""
    folder = tmp_path_factory.mktemp("venv") / "v"
    done = run(sys.executable, "-m", "venv", folder)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


@pytest.fixture
def uv() -> str:
    found = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert found is not None, "uv is one of the development dependencies"
    return found


def installed(python: Path, distribution: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    return run(python, "-c", code).stdout.strip()


def pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", *arguments)


@pytest.mark.suite("hub", first=1)
def test_the_pages_of_the_index_have_digests_yanks_and_metadata(client: httpx.Client) -> None:
    name = new_name()
    one, two = release(f"alice/{name}"), release(f"alice/{name}", "1.1.0")
    published(client, one)
    published(client, two)
    client.post(f"/api/v1/environments/alice/{name}/versions/1.1.0/yank", json={"reason": 'says "no" & <b>'})
    page = client.get(f"/index/alice/simple/alice-{name}/").text
    assert f"/files/{one.sha256}/{one.filename}#sha256={one.sha256}" in page
    assert 'data-yanked="says &quot;no&quot; &amp; &lt;b&gt;"' in page
    assert 'data-requires-python="&gt;=3.11"' in page
    answer = client.get(f"/index/simple/alice-{name}/", headers=JSON)
    assert answer.headers["content-type"] == JSON["accept"]
    data = answer.json()
    assert (data["name"], data["versions"]) == (f"alice-{name}", ["1.0.0", "1.1.0"])
    first, second = data["files"]
    assert (first["hashes"], first["size"], first["yanked"]) == ({"sha256": one.sha256}, len(one.wheel), False)
    assert second["yanked"] == 'says "no" & <b>'
    assert client.get(first["url"]).content == one.wheel
    assert client.head(first["url"]).headers["content-length"] == str(len(one.wheel))
    metadata = client.get(first["url"] + ".metadata")
    assert metadata.text.startswith("Metadata-Version")
    assert f"sha256={first['core-metadata']['sha256']}" in page


def test_each_owner_has_an_index_of_its_own(client: httpx.Client) -> None:
    owner, name = new_name("owner"), new_name()
    published(client, release(f"{owner}/{name}"))
    assert client.get(f"/index/{owner}/simple/", headers=JSON).json()["projects"] == [{"name": f"{owner}-{name}"}]
    assert {"name": f"{owner}-{name}"} in client.get("/index/simple/", headers=JSON).json()["projects"]
    assert client.get(f"/index/alice/simple/{owner}-{name}/").status_code == 404
    moved = client.get(f"/index/{owner}/simple/{owner.upper()}__{name}/")
    assert (moved.status_code, moved.headers["location"]) == (301, f"../{owner}-{name}/")


@pytest.mark.suite("hub")
def test_pip_and_uv_install_from_the_index_of_an_owner(client: httpx.Client, target: Path, uv: str) -> None:
    name = new_name()
    published(client, release(f"alice/{name}"))
    address = f"{client.base_url}/index/alice/simple/".replace("//index", "/index")
    done = pip(target, "--index-url", address, f"alice-{name}")
    assert done.returncode == 0, done.stderr
    assert installed(target, f"alice-{name}") == "1.0.0"
    published(client, release(f"alice/{name}", "1.1.0"))
    done = run(uv, "pip", "install", "--python", target, "--no-deps", "--default-index", address, "-U", f"alice-{name}")
    assert done.returncode == 0, done.stderr
    assert installed(target, f"alice-{name}") == "1.1.0"


@pytest.mark.suite("hub")
def test_a_yanked_version_is_installed_only_where_it_is_pinned(client: httpx.Client, target: Path, uv: str) -> None:
    name = new_name()
    for version in ("1.0.0", "1.1.0"):
        published(client, release(f"alice/{name}", version))
    client.post(f"/api/v1/environments/alice/{name}/versions/1.1.0/yank", json={"reason": "wrong"})
    address = f"{str(client.base_url).rstrip('/')}/index/simple/"
    assert pip(target, "--index-url", address, f"alice-{name}").returncode == 0
    assert installed(target, f"alice-{name}") == "1.0.0"
    done = run(
        uv, "pip", "install", "--python", target, "--no-deps", "--default-index", address, f"alice-{name}==1.1.0"
    )
    assert done.returncode == 0, done.stderr
    assert installed(target, f"alice-{name}") == "1.1.0"


@pytest.fixture
def tampered(plain_hub: HubProcess, plain_client: httpx.Client) -> Iterator[Release]:
    """A version whose wheel was changed on the hub's disk after it was published."""
    one = release(f"alice/{new_name()}")
    published(plain_client, one)
    evil = WheelParts(one.manifest.id.replace("/", "-"), module="raise SystemExit('evil')\n").pack()
    blob = plain_hub.data / "blobs" / one.sha256[:2] / one.sha256
    blob.write_bytes(evil)
    yield one
    blob.write_bytes(one.wheel)


@pytest.mark.suite("hub")
def test_pip_and_uv_refuse_a_tampered_wheel(tampered: Release, plain_hub: HubProcess, target: Path, uv: str) -> None:
    name = tampered.manifest.id.replace("/", "-")
    address = f"{plain_hub.url}/index/simple/"
    for done in (
        pip(target, "--index-url", address, name),
        run(uv, "pip", "install", "--python", target, "--no-deps", "--default-index", address, name),
    ):
        assert done.returncode != 0
        assert "hash" in done.stderr.lower()
    assert installed(target, name) == ""


def wheel_file(one: Release, folder: Path) -> Path:
    path = folder / one.filename
    path.write_bytes(one.wheel)
    return path


def twine(hub: str, wheel: Path, password: str = "none", **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twine", "upload", "--non-interactive", "--disable-progress-bar"]
    return run(
        *command, "--repository-url", f"{hub}/index/upload/", "-u", "__token__", "-p", password, wheel, **variables
    )


@pytest.mark.suite("hub")
def test_twine_uploads_and_pip_installs_what_it_uploaded(client: httpx.Client, target: Path, tmp_path: Path) -> None:
    one = release(f"alice/{new_name()}", key=None)
    hub = str(client.base_url).rstrip("/")
    done = twine(hub, wheel_file(one, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert client.get(f"/api/v1/environments/{one.manifest.id}").json()["signed"] is False
    name = one.manifest.id.replace("/", "-")
    assert pip(target, "--index-url", f"{hub}/index/simple/", name).returncode == 0
    assert installed(target, name) == "1.0.0"


def test_uv_publishes_through_the_same_address(plain_client: httpx.Client, uv: str, tmp_path: Path) -> None:
    one = release(f"alice/{new_name()}", key=None)
    hub = str(plain_client.base_url).rstrip("/")
    path = wheel_file(one, tmp_path)
    done = run(uv, "publish", "--publish-url", f"{hub}/index/upload/", "-u", "__token__", "-p", "none", path)
    assert done.returncode == 0, done.stderr
    assert plain_client.get(f"/api/v1/environments/{one.manifest.id}").status_code == 200


LYING_TWINE = """
import sys
import twine.package
original = twine.package.PackageFile.metadata_dictionary

def lie(self):
    fields = original(self)
    fields["sha256_digest"] = "0" * 64
    return fields

twine.package.PackageFile.metadata_dictionary = lie
from twine.__main__ import main
sys.exit(main())
"""


def test_a_wrong_digest_from_twine_is_refused_by_the_hub(plain_client: httpx.Client, tmp_path: Path) -> None:
    one = release(f"alice/{new_name()}", key=None)
    path = wheel_file(one, tmp_path)
    hub = str(plain_client.base_url).rstrip("/")
    options = ["upload", "--non-interactive", "--disable-progress-bar", "--verbose", "-u", "__token__", "-p", "none"]
    done = run(sys.executable, "-c", LYING_TWINE, *options, "--repository-url", f"{hub}/index/upload/", path)
    assert done.returncode != 0
    assert "DigestMismatch" in done.stdout + done.stderr
    assert plain_client.get(f"/api/v1/environments/{one.manifest.id}").status_code == 404


@pytest.mark.suite("hub")
def test_an_index_that_is_not_explicit_can_be_shadowed_and_a_hashed_address_cannot(
    plain_client: httpx.Client, target: Path
) -> None:
    """Two owners cannot have one distribution; a requirement with an address and a digest takes no other file."""
    one = release(f"alice/{new_name()}")
    info = published(plain_client, one)
    name = one.manifest.id.replace("/", "-")
    wrong = f"{name} @ {info['url']}#sha256={'0' * 64}"
    assert pip(target, wrong).returncode != 0
    right = f"{name} @ {info['url']}#sha256={one.sha256}"
    done = pip(target, right)
    assert done.returncode == 0, done.stderr
    assert installed(target, name) == "1.0.0"


def test_a_refused_upload_is_answered_with_a_reason_that_twine_shows(
    plain_client: httpx.Client, tmp_path: Path
) -> None:
    one = release("nobody/coin", parts=WheelParts("coin"))
    done = twine(str(plain_client.base_url).rstrip("/"), wheel_file(one, tmp_path))
    assert done.returncode != 0
    assert "422" in done.stdout + done.stderr
    assert upload(plain_client, one).status_code == 422
