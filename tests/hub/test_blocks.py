"""An administrator blocks a wheel by its digest: no name or version leads to these bytes, and everyone reads why."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hub_people import PEOPLE, PeopleHub, in_process
from hubs import HubProcess, WheelParts, kind_of, new_name, publish, published, release
from terminal import run_ludus_here

from ludus.hub.app import create_hub
from ludus.hub.operation.backup import write_backup
from ludus.hub.operation.parts import open_parts
from ludus.hub.operation.restore import restore_backup
from ludus.hub.settings.hub import HubSettings

pytestmark = pytest.mark.timeout(180)
REASON = "it sends prompts to <a stranger>"
JSON_INDEX = {"accept": "application/vnd.pypi.simple.v1+json"}


def put(client: httpx.Client, sha256: str, reason: str = REASON) -> dict[str, Any]:
    answer = client.put(f"/api/v1/blocks/{sha256}", json={"reason": reason})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def index_of(client: httpx.Client, distribution: str) -> dict[str, Any]:
    answer = client.get(f"/index/simple/{distribution}/", headers=JSON_INDEX)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_index_leaves_a_blocked_file_out_and_its_download_says_why(client: httpx.Client) -> None:
    name = f"local/{new_name()}"
    first, second = published(client, release(name)), published(client, release(name, "1.1.0"))
    path = httpx.URL(second["url"]).path
    etag = client.get(path).headers["etag"]
    assert client.get(path, headers={"if-none-match": etag}).status_code == 304
    info = put(client, second["sha256"])
    assert (info["versions"], info["reason"], info["by"]) == ([f"{name}@1.1.0"], REASON, "local")
    assert [file["filename"] for file in index_of(client, name.replace("/", "-"))["files"]] == [first["filename"]]
    html = client.get(f"/index/local/simple/{name.replace('/', '-')}/").text
    assert second["filename"] not in html
    for address in (path, f"{path}.metadata"):
        for headers in ({}, {"if-none-match": etag}):
            refused = client.get(address, headers=headers)
            assert (refused.status_code, kind_of(refused)) == (403, "VersionBlocked")
            assert REASON in refused.json()["detail"]
            assert REASON in refused.reason_phrase
    assert client.get(httpx.URL(first["url"]).path).status_code == 200
    latest = client.get(f"/api/v1/environments/{name}/versions/latest").json()
    assert (latest["version"], latest["blocked"]) == ("1.0.0", None)
    put(client, first["sha256"])
    page = index_of(client, name.replace("/", "-"))
    assert (page["files"], page["meta"]["project-status"]["status"]) == ([], "quarantined")
    assert client.get(f"/api/v1/environments/{name}").json()["blocked"]
    assert client.delete(f"/api/v1/blocks/{second['sha256']}").json()["reason"] == REASON
    assert [file["filename"] for file in index_of(client, name.replace("/", "-"))["files"]] == [second["filename"]]
    assert kind_of(client.delete(f"/api/v1/blocks/{second['sha256']}")) == "PackageNotFound"


def test_blocked_bytes_are_refused_under_every_name_also_before_they_ever_came(client: httpx.Client) -> None:
    name = f"local/{new_name()}"
    one = release(name)
    put(client, one.sha256)
    refused = publish(client, one)
    assert (refused.status_code, kind_of(refused)) == (403, "VersionBlocked")
    assert REASON in refused.json()["detail"]
    legacy = client.post(
        "/index/upload/", data={":action": "file_upload", "sha256_digest": one.sha256},
        files={"content": (one.filename, one.wheel)},
    )  # fmt: skip
    assert kind_of(legacy) == "VersionBlocked"
    assert client.get(f"/api/v1/environments/{name}").status_code == 404
    client.delete(f"/api/v1/blocks/{one.sha256}")
    published(client, one)
    put(client, one.sha256)
    assert kind_of(publish(client, one)) == "VersionBlocked"  # the same upload again is no success either
    for sha256, body in (("0" * 63, {"reason": "x"}), ("0" * 64, {"reason": "a\nb"}), ("0" * 64, {})):
        assert client.put(f"/api/v1/blocks/{sha256}", json=body).status_code in (400, 422)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    app = create_hub(HubSettings(data=tmp_path_factory.mktemp("people"), seed=False))
    found = PeopleHub(app, in_process(app))
    for name in ("root", *PEOPLE):
        found.hub.people.accounts.create(name, "correct horse battery", admin=name == "root")
    with found.client:
        yield found


def test_only_administrators_block_and_list_and_the_log_names_them(people: PeopleHub) -> None:
    from ludus.registry.types.people import USUAL_SCOPES, HubScope

    scopes = (*USUAL_SCOPES, HubScope.ADMIN)
    root = {"authorization": f"Bearer {people.token('root', scopes)}"}
    alice = {"authorization": f"Bearer {people.token('alice')}"}
    sha256 = hashlib.sha256(b"evil").hexdigest()
    for headers, status in (({}, 401), (alice, 403)):
        for method, path in (("PUT", f"/{sha256}"), ("DELETE", f"/{sha256}"), ("GET", "")):
            body = {"reason": "x"} if method == "PUT" else None
            answer = people.client.request(method, f"/api/v1/blocks{path}", json=body, headers=headers)
            assert answer.status_code == status, answer.text
    assert people.client.get(f"/api/v1/blocks/{sha256}").status_code == 404
    assert people.client.put(f"/api/v1/blocks/{sha256}", json={"reason": "evil"}, headers=root).status_code == 200
    assert [one["sha256"] for one in people.client.get("/api/v1/blocks", headers=root).json()["blocks"]] == [sha256]
    shown = people.client.get(f"/api/v1/blocks/{sha256}", headers=alice).json()
    assert (shown["reason"], shown["by"]) == ("evil", "")
    assert people.client.get(f"/api/v1/blocks/{sha256}", headers=root).json()["by"] == "root"
    events = people.client.get("/api/v1/audit", headers=root).json()["events"]
    assert ("blocked", f"sha256:{sha256}", "root") in [(e["action"], e["subject"], e["actor"]) for e in events]


def test_pages_show_the_block_with_its_reason_as_text(client: httpx.Client) -> None:
    name = f"local/{new_name()}"
    one = published(client, release(name))
    put(client, one["sha256"])
    for address in (f"/{name}", f"/{name}/versions/1.0.0"):
        page = client.get(address).text
        assert "Blocked by an administrator." in page
        assert "it sends prompts to &lt;a stranger&gt;" in page
        assert "<a stranger>" not in page
    assert "blocked" in client.get(f"/{name}/badge.svg").text
    listed = client.get(f"/v0.1/servers/{_server_name(client, name)}/versions/1.0.0")
    assert (listed.status_code, "deleted" in listed.text) in ((200, True), (404, False))


def _server_name(client: httpx.Client, name: str) -> str:
    found = client.get("/v0.1/servers", params={"search": name.partition("/")[2]}).json()["servers"]
    return str(found[0]["server"]["name"]).replace("/", "%2F") if found else "none"


# ── programs ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Programs:
    """The real programs, with a configuration and caches of their own."""

    folder: Path
    hub: str

    @property
    def variables(self) -> dict[str, str]:
        return {
            "LUDUS_CONFIG_DIR": str(self.folder), "LUDUS_HUB": self.hub, "COLUMNS": "200",
            "UV_CACHE_DIR": str(self.folder / "uv"), "PIP_CACHE_DIR": str(self.folder / "pip"),
        }  # fmt: skip

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*map(str, command)], capture_output=True, text=True, timeout=120, cwd=self.folder,
            env={**{key: value for key, value in os.environ.items() if key != "PIP_NO_CACHE_DIR"}, **self.variables},
        )  # fmt: skip

    def ludus(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        done = run_ludus_here(*arguments, cwd=self.folder, variables=self.variables)
        assert "Traceback" not in done.stderr
        return done


@pytest.mark.suite("hub", first=1)
def test_pip_uv_and_ludus_install_stop_with_the_reason_although_lock_and_caches_have_the_wheel(
    plain_hub: HubProcess, python: Path, tmp_path: Path
) -> None:
    name, programs = f"local/{new_name()}", Programs(tmp_path, plain_hub.url)
    with plain_hub.client() as client:
        info = published(client, release(name, parts=WheelParts(name.replace("/", "-"))))
    requirement = f"{info['distribution']} @ {info['url']}#sha256={info['sha256']}"
    installers: dict[str, list[str | Path]] = {
        "pip": [python, "-m", "pip", "install", "--no-deps", "--no-index", "--force-reinstall", requirement],
        "uv": [Path(sys.executable).parent / "uv", "pip", "install", "--python", python, "--no-deps", "--reinstall",
               "--no-config", "--no-index", requirement],
    }  # fmt: skip
    locked: list[str | Path] = ["install", "--locked", "--no-deps", "--python", python]
    for command in installers.values():
        done = programs.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    done = programs.ludus("install", name, "--lock", "--no-deps", "--python", python)
    assert done.returncode == 0, done.stderr
    done = programs.ludus("hub", "block", f"{name}@1.0.0", "--reason", "it steals keys", "--hub", plain_hub.url)
    assert (done.returncode, name in done.stdout) == (0, True), done.stderr
    for program, command in installers.items():
        done = programs.run(*command)
        assert done.returncode != 0, program
        assert "it steals keys" in done.stdout + done.stderr, (program, done.stdout + done.stderr)
    for arguments in (locked, ["install", f"{name}@1.0.0"], ["install", name], ["lock", name]):
        done = programs.ludus(*arguments)
        assert done.returncode != 0
        assert f"{name} 1.0.0 is blocked on this hub: it steals keys" in " ".join(done.stderr.split()), done.stderr
    assert "it steals keys" in programs.ludus("versions", name).stdout
    assert "it steals keys" in programs.ludus("hub", "blocks", "--hub", plain_hub.url).stdout
    done = programs.ludus("hub", "unblock", f"{name}@1.0.0", "--hub", plain_hub.url)
    assert done.returncode == 0
    assert programs.ludus(*locked).returncode == 0


def test_the_operator_blocks_in_the_data_folder_and_the_running_hub_and_a_restored_one_obey(
    plain_hub: HubProcess, tmp_path: Path
) -> None:
    programs, here = Programs(tmp_path, "http://127.0.0.1:9"), ("--data", plain_hub.data)
    name = f"local/{new_name()}"
    with plain_hub.client() as client:
        one = published(client, release(name))
        for target in (f"{name}@1.0", f"sha256:{one['sha256']}"):
            done = programs.ludus("hub", "block", target, "--reason", REASON, *here)
            assert done.returncode == 0, done.stderr
            assert one["sha256"] in done.stdout
            assert kind_of(client.get(httpx.URL(one["url"]).path)) == "VersionBlocked"
            if target.endswith("1.0"):
                assert programs.ludus("hub", "unblock", target, *here).returncode == 0
                assert client.get(httpx.URL(one["url"]).path).status_code == 200
    for arguments in (
        ("block", name, "--reason", "x", *here), ("block", "sha256:00", "--reason", "x", *here),
        ("block", f"{name}@9", "--reason", "x", *here), ("block", f"{name}@1.0", "--reason", "", *here),
        ("blocks", "--data", tmp_path / "none"),
    ):  # fmt: skip
        done = programs.ludus("hub", *arguments)
        assert done.returncode != 0
        assert done.stderr
    assert not (tmp_path / "none").exists()
    with open_parts(plain_hub.data) as parts:
        backup = write_backup(parts, tmp_path)[0]
    with open_parts(tmp_path / "again", new=True) as parts:
        restore_backup(parts, backup)
    with in_process(create_hub(HubSettings(data=tmp_path / "again", seed=False))) as client:
        listed = json.loads(client.get("/api/v1/blocks").text)["blocks"]
        assert (one["sha256"], "") in [(row["sha256"], row["by"]) for row in listed]
        assert kind_of(client.get(httpx.URL(one["url"]).path)) == "VersionBlocked"
