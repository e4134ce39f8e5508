"""The package index, with real pip, uv and twine, unchanged."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hubs import HubProcess, Release, WheelParts, new_name, published, release, twine_form, upload

JSON = {"accept": "application/vnd.pypi.simple.v1+json"}


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program without settings that could add other indexes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "TWINE_"))}
    settings = {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}
    return subprocess.run(
        [str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        env={**kept, **settings, **variables},
    )  # fmt: skip


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
def test_pip_and_uv_install_from_the_index_of_an_owner(client: httpx.Client, python: Path, uv: str) -> None:
    name = new_name()
    published(client, release(f"alice/{name}"))
    address = f"{client.base_url}/index/alice/simple/".replace("//index", "/index")
    done = pip(python, "--index-url", address, f"alice-{name}")
    assert done.returncode == 0, done.stderr
    assert installed(python, f"alice-{name}") == "1.0.0"
    published(client, release(f"alice/{name}", "1.1.0"))
    done = run(uv, "pip", "install", "--python", python, "--no-deps", "--default-index", address, "-U", f"alice-{name}")
    assert done.returncode == 0, done.stderr
    assert installed(python, f"alice-{name}") == "1.1.0"


@pytest.mark.suite("hub")
def test_a_yanked_version_is_installed_only_where_it_is_pinned(client: httpx.Client, python: Path, uv: str) -> None:
    name = new_name()
    for version in ("1.0.0", "1.1.0"):
        published(client, release(f"alice/{name}", version))
    client.post(f"/api/v1/environments/alice/{name}/versions/1.1.0/yank", json={"reason": "wrong"})
    address = f"{str(client.base_url).rstrip('/')}/index/simple/"
    assert pip(python, "--index-url", address, f"alice-{name}").returncode == 0
    assert installed(python, f"alice-{name}") == "1.0.0"
    done = run(
        uv, "pip", "install", "--python", python, "--no-deps", "--default-index", address, f"alice-{name}==1.1.0"
    )
    assert done.returncode == 0, done.stderr
    assert installed(python, f"alice-{name}") == "1.1.0"


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
def test_pip_and_uv_refuse_a_tampered_wheel(tampered: Release, plain_hub: HubProcess, python: Path, uv: str) -> None:
    name = tampered.manifest.id.replace("/", "-")
    address = f"{plain_hub.url}/index/simple/"
    for done in (
        pip(python, "--index-url", address, name),
        run(uv, "pip", "install", "--python", python, "--no-deps", "--default-index", address, name),
    ):
        assert done.returncode != 0
        assert "hash" in done.stderr.lower()
    assert installed(python, name) == ""


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
def test_twine_uploads_and_pip_installs_what_it_uploaded(client: httpx.Client, python: Path, tmp_path: Path) -> None:
    one = release(f"alice/{new_name()}", key=None)
    hub = str(client.base_url).rstrip("/")
    done = twine(hub, wheel_file(one, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert client.get(f"/api/v1/environments/{one.manifest.id}").json()["signed"] is False
    name = one.manifest.id.replace("/", "-")
    assert pip(python, "--index-url", f"{hub}/index/simple/", name).returncode == 0
    assert installed(python, name) == "1.0.0"


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
    plain_client: httpx.Client, python: Path
) -> None:
    """Two owners cannot have one distribution; a requirement with an address and a digest takes no other file."""
    one = release(f"alice/{new_name()}")
    info = published(plain_client, one)
    name = one.manifest.id.replace("/", "-")
    wrong = f"{name} @ {info['url']}#sha256={'0' * 64}"
    assert pip(python, wrong).returncode != 0
    right = f"{name} @ {info['url']}#sha256={one.sha256}"
    done = pip(python, right)
    assert done.returncode == 0, done.stderr
    assert installed(python, name) == "1.0.0"


def test_a_refused_upload_is_answered_with_a_reason_that_twine_shows(
    plain_client: httpx.Client, tmp_path: Path
) -> None:
    one = release("nobody/coin", parts=WheelParts("coin"))
    done = twine(str(plain_client.base_url).rstrip("/"), wheel_file(one, tmp_path))
    assert done.returncode != 0
    answer = upload(plain_client, one)
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] in " ".join((done.stdout + done.stderr).split())


def test_twine_shows_why_a_second_spelling_of_a_version_is_refused(plain_client: httpx.Client, tmp_path: Path) -> None:
    name = f"alice/{new_name()}"
    published(plain_client, release(name, "1.0"))
    done = twine(str(plain_client.base_url).rstrip("/"), wheel_file(release(name, "1.0.0"), tmp_path))
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert f"{name} has the version 1.0, and 1.0.0 is the same version in another spelling" in said


def test_a_yank_is_not_walked_around_by_another_spelling_of_the_version(
    plain_client: httpx.Client, python: Path, uv: str
) -> None:
    name = new_name()
    for version in ("1.0", "0.9"):
        published(plain_client, release(f"alice/{name}", version))
    address = f"{str(plain_client.base_url).rstrip('/')}/index/simple/"
    plain_client.post(f"/api/v1/environments/alice/{name}/versions/1.0.0/yank", json={"reason": "wrong"})
    assert upload(plain_client, release(f"alice/{name}", "1", key=None)).status_code == 409
    for spelling in ("1", "1.0.0"):
        pinned = f"alice-{name}=={spelling}"
        assert pip(python, "--index-url", address, "--force-reinstall", pinned).returncode == 0
        assert installed(python, f"alice-{name}") == "1.0"
        options = ["--no-deps", "--reinstall", "--default-index", address]
        install = [uv, "pip", "install", "--python", str(python), *options]
        assert run(*install, pinned).returncode == 0
        assert installed(python, f"alice-{name}") == "1.0"
        assert run(*install, f"alice-{name}").returncode == 0
        assert installed(python, f"alice-{name}") == "0.9"


@pytest.mark.parametrize("filename", ["a\r\nset-cookie: a=b\r\n\r\nx.whl", "ä\x00\x1b[31m\u2028.whl", "x" * 5_000])
def test_the_reason_in_the_status_line_is_one_line_of_plain_text(plain_hub: HubProcess, filename: str) -> None:
    one = release(f"alice/{new_name()}", key=None)
    form = "".join(
        f'--b\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {**twine_form(one), ":action": filename}.items()
    )
    file = '--b\r\ncontent-disposition: form-data; name="content"; filename="a.whl"\r\n\r\nx\r\n--b--\r\n'
    body = (form + file).encode()
    with socket.create_connection(("127.0.0.1", plain_hub.port), timeout=30) as connection:
        connection.sendall(
            b"POST /index/upload/ HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            b"content-type: multipart/form-data; boundary=b\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, rest = answer.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    assert re.fullmatch(rb"HTTP/1\.1 4\d\d [\x20-\x7e]{1,500}", line), line
    assert not any(field.lower().startswith(b"set-cookie") for field in fields)
    assert json.loads(rest)["error"]["message"]
