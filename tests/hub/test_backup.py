"""Backups of a running hub, restored over the same database and over the other one; and checks of what a hub keeps."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hubs import HubProcess, new_name, published, release, upload
from postgres_server import PostgresServer

from ludus.hub.core.blobs import Blobs
from ludus.hub.operation.backup import newest_revision, write_backup
from ludus.hub.operation.check import CheckReport, check_hub
from ludus.hub.operation.errors import BackupFailed, BackupRefused, RestoreRefused
from ludus.hub.operation.parts import open_parts
from ludus.hub.operation.restore import restore_backup
from ludus.registry.types.errors import BlobMissing

NewDatabase = Callable[[str], str | None]


@pytest.fixture(scope="module")
def new_database(request: pytest.FixtureRequest) -> NewDatabase:
    """Return an empty database of a kind; None for the SQLite file in the data folder."""

    def new(kind: str) -> str | None:
        server: PostgresServer | None = request.getfixturevalue("postgres") if kind == "postgres" else None
        return server.new_url() if server is not None else None

    return new


@dataclass
class Source:
    """A hub with a history, and a backup of it."""

    hub: HubProcess
    database: str | None
    backup: Path
    names: list[str]


def back_up(target: Path, data: Path, database: str | None = None) -> Path:
    with open_parts(data, database) as parts:
        return write_backup(parts, target)[0]


def restore(backup: Path, data: Path, database: str | None = None) -> None:
    with open_parts(data, database, new=True) as parts:
        restore_backup(parts, backup)


def checked(data: Path, database: str | None = None) -> CheckReport:
    with open_parts(data, database) as parts:
        return check_hub(parts)


@pytest.fixture(scope="module")
def source(kind: str, new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    folder = tmp_path_factory.mktemp("source")
    database = new_database(kind)
    hub = HubProcess(folder / "data", "--no-seed", database=database)
    names = [f"alice/{new_name()}" for _ in range(3)]
    with hub.client() as client:
        for name in names:
            for version in ("1.0.0", "1.1.0"):
                published(client, release(name, version, card=f"# {name} ünïcode \u2028 &amp;\n"))
        upload(client, release(f"bob/{new_name()}", key=None))
        client.post(f"/api/v1/environments/{names[0]}/versions/1.1.0/yank", json={"reason": "wrong"})
        client.put(f"/api/v1/environments/{names[0]}/owners/bob")
    (hub.data / "rollouts" / "alice").mkdir(parents=True)
    (hub.data / "rollouts" / "alice" / "file.jsonl").write_text("{}\n")
    yield Source(hub, database, back_up(folder / "backup.tar", hub.data, database), names)
    assert hub.stop() == 0


def answers(client: httpx.Client, names: list[str]) -> dict[str, bytes]:
    """Return what a hub answers at every address that shows what it keeps, for one name of the hub."""
    paths = ["/api/v1/environments", "/api/v1/environments?q=coin", "/index/simple/", "/v0.1/servers",
             "/v0.1/servers?updated_since=2020-01-01T00:00:00Z", "/.well-known/ai-catalog.json",
             "/api/v1/owners/alice/keys"]  # fmt: skip
    for name in names:
        paths += [f"/api/v1/environments/{name}", f"/api/v1/environments/{name}/versions",
                  f"/api/v1/environments/{name}/owners", f"/api/v1/environments?q={name.partition('/')[2]}",
                  f"/index/simple/{name.replace('/', '-')}/", f"/e/{name}/mcp/server-card", f"/{name}"]  # fmt: skip
        paths += [f"/api/v1/environments/{name}/versions/{version}" for version in ("1.0.0", "1.1.0")]
    found = {path: client.get(path, headers={"host": "localhost"}) for path in paths}
    for path in [one for one in paths if "/versions/1" in one]:
        url = found[path].json()["url"].removeprefix("http://localhost")
        found[url], found[f"{url}.metadata"] = client.get(url), client.get(f"{url}.metadata")
    assert {answer.status_code for answer in found.values()} == {200}
    return {path: answer.content for path, answer in found.items()}


@pytest.mark.suite("hub")
@pytest.mark.parametrize("to", ["sqlite", "postgres"])
def test_a_restored_hub_answers_byte_for_byte_like_the_one_before(
    source: Source, to: str, new_database: NewDatabase, tmp_path: Path
) -> None:
    database = new_database(to)
    restore(source.backup, tmp_path / "data", database)
    report = checked(tmp_path / "data", database)
    assert (report.ok, report.versions, report.problems) == (True, 7, [])
    assert (tmp_path / "data" / "rollouts" / "alice" / "file.jsonl").read_text() == "{}\n"
    restored = HubProcess(tmp_path / "data", "--no-seed", database=database)
    try:
        with source.hub.client() as before, restored.client() as after:
            wanted, found = answers(before, source.names), answers(after, source.names)
            assert found.keys() == wanted.keys()
            for path, content in wanted.items():
                assert found[path] == content, path
            published(after, release(source.names[0], "2.0.0"))
            published(after, release(f"alice/{new_name()}"))
    finally:
        assert restored.stop() == 0


class WatchedBlobs(Blobs):
    """Blobs that call something before the first of them is read."""

    def __init__(self, folder: Path, first: Callable[[], None]) -> None:
        super().__init__(folder)
        self._first: Callable[[], None] | None = first

    def size_of(self, digest: str) -> int:
        if self._first is not None:
            self._first()
            self._first = None
        return super().size_of(digest)


@pytest.mark.suite("hub")
def test_a_backup_during_publishing_is_of_one_moment(source: Source, tmp_path: Path) -> None:
    before, meanwhile = release(f"carol/{new_name()}"), release(f"carol/{new_name()}")
    with source.hub.client() as client, open_parts(source.hub.data, source.database) as parts:
        published(client, before)

        def publish_meanwhile() -> None:
            published(client, meanwhile)

        blobs = WatchedBlobs(source.hub.data / "blobs", publish_meanwhile)
        backup, _ = write_backup(replace(parts, blobs=blobs), tmp_path)
        assert client.get(f"/api/v1/environments/{meanwhile.manifest.id}").status_code == 200
    assert [backup] == list(tmp_path.glob("ludus-hub-*.tar"))
    restore(backup, tmp_path / "data")
    assert checked(tmp_path / "data").ok
    with closing(sqlite3.connect(tmp_path / "data" / "hub.sqlite")) as connection:
        names = {f"carol/{name}" for (name,) in connection.execute("SELECT name FROM packages WHERE owner = 'carol'")}
    assert before.manifest.id in names
    assert meanwhile.manifest.id not in names


def members(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as tar:
        return [(info, (tar.extractfile(info) or io.BytesIO()).read()) for info in tar]


def packed(path: Path, content: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for info, data in content:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def named(name: str, data: bytes) -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), data


def refused(backup: Path, folder: Path) -> str:
    """Return why a backup is not restored; nothing may be written for it."""
    data = folder / "data"
    with pytest.raises(BackupRefused) as error:
        restore(backup, data)
    assert [path.name for path in data.rglob("*") if path.is_file() and not path.name.startswith("hub.sqlite")] == []
    return error.value.message


@pytest.fixture(scope="module")
def small_backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a hub over SQLite with one version."""
    folder = tmp_path_factory.mktemp("small")
    hub = HubProcess(folder / "data", "--no-seed")
    with hub.client() as client:
        published(client, release("alice/coin"))
    hub.stop()
    (folder / "data" / "hub-key.pem").write_text("a key")
    back_up(folder / "b.tar", folder / "data")
    assert (folder / "b.tar").stat().st_mode & 0o777 == 0o600, "it holds keys"
    return folder / "b.tar"


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.9])
def test_a_cut_backup_is_refused_whole(small_backup: Path, tmp_path: Path, part: float) -> None:
    data = small_backup.read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(data[: int(len(data.rstrip(b"\0")) * part)])
    assert "cut" in refused(cut, tmp_path)


def test_a_changed_byte_anywhere_is_refused_whole(small_backup: Path, tmp_path: Path) -> None:
    for prefix in ("tables/versions", "blobs/", "files/"):
        content = members(small_backup)
        at = next(place for place, (info, _) in enumerate(content) if info.name.startswith(prefix))
        info, data = content[at]
        content[at] = (info, data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
        assert "is not as its list of members says" in refused(packed(tmp_path / "c.tar", content), tmp_path), prefix


def unknown_schema(index: bytes) -> bytes:
    """The list of members of a backup of a schema that does not exist yet."""
    return index.replace(f'"{newest_revision()}"'.encode(), b'"9999"')


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda all: all[1:], "is not as its list"),
        (lambda all: [*all[:-1], named("files/more", b"x"), all[-1]], "is not as its list"),
        (lambda all: [*all, named("files/more", b"x")], "goes on after"),
        (lambda all: [named("files/../../evil", b"x"), *all], "no name of a member"),
        (lambda all: [named("/etc/passwd", b"x"), *all], "no name of a member"),
        (lambda all: [all[0], *all], "twice"),
        (lambda all: [*all[:-1], named("backup.json", b'{"format": "ludus-hub-backup-9"}')], "newer version"),
        (lambda all: [*all[:-1], named("backup.json", unknown_schema(all[-1][1]))], "does not know"),
    ],
    ids=["member removed", "member added", "member after the end", "path out", "absolute path", "twice", "newer format",
         "newer schema"],
)  # fmt: skip
def test_a_backup_with_other_members_is_refused_whole(
    small_backup: Path, tmp_path: Path, change: Callable[[list[Any]], list[Any]], words: str
) -> None:
    backup = packed(tmp_path / "changed.tar", change(members(small_backup)))
    if words == "does not know":  # found out in the transaction that would fill the database, which stays empty
        with pytest.raises(BackupRefused, match=words):
            restore(backup, tmp_path / "data")
        restore(small_backup, tmp_path / "data")
        return
    assert words in refused(backup, tmp_path)


def test_a_link_in_a_backup_is_refused(small_backup: Path, tmp_path: Path) -> None:
    link = tarfile.TarInfo("files/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    assert "not a file" in refused(packed(tmp_path / "l.tar", [(link, b""), *members(small_backup)]), tmp_path)


def test_a_hub_that_has_something_is_not_overwritten(small_backup: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    restore(small_backup, data)
    with pytest.raises(RestoreRefused, match="has rows"):
        restore(small_backup, data)
    assert checked(data).ok
    other = tmp_path / "other"
    other.mkdir()
    (other / "hub-key.pem").write_text("another key")
    with pytest.raises(RestoreRefused, match="exists with other content"):
        restore(small_backup, other)
    assert (other / "hub-key.pem").read_text() == "another key"


def test_a_restore_that_was_stopped_goes_on_where_it_was(small_backup: Path, tmp_path: Path) -> None:
    for info, data in members(small_backup):
        if info.name.startswith("blobs/"):
            path = tmp_path / "data" / "blobs" / info.name[6:8] / info.name[6:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            break
    restore(small_backup, tmp_path / "data")
    assert checked(tmp_path / "data").ok


def test_a_backup_replaces_no_file_and_needs_a_hub(small_backup: Path, tmp_path: Path) -> None:
    data = small_backup.parent / "data"
    for target, folder, words in (
        (small_backup, data, "exists"),
        (tmp_path / "b.tar", tmp_path / "none", "no data folder of a hub"),
        (tmp_path / "no" / "b.tar", data, "cannot be written"),
        (data / "b.tar", data, "would hold itself"),
        (data, data, "would hold itself"),
    ):
        with pytest.raises(BackupFailed, match=words):
            back_up(target, folder)
    assert list(tmp_path.iterdir()) == []
    assert not list(data.glob("*.tar"))


def test_a_check_finds_lost_changed_and_unreferenced_files_and_forged_rows(small_backup: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    restore(small_backup, data)
    lost, changed = sorted(path for path in (data / "blobs").rglob("*") if len(path.name) == 64)
    lost.unlink()
    changed.write_bytes(b"changed")
    (data / "blobs" / "ab").mkdir(exist_ok=True)
    stray = "ab" + "0" * 62
    (data / "blobs" / "ab" / stray).write_bytes(b"stray")
    with closing(sqlite3.connect(data / "hub.sqlite")) as connection, connection:
        connection.execute("UPDATE versions SET card = 'forged'")
        connection.execute("UPDATE packages SET latest = '9.0.0'")
    report = checked(data)
    assert not report.ok
    assert {(problem.kind, problem.subject) for problem in report.problems} == {
        ("missing", lost.name), ("changed", changed.name), ("unreferenced", stray), ("signature", "alice/coin@1.0.0"),
        ("catalog", "alice/coin"),
    }  # fmt: skip
    with pytest.raises(BlobMissing, match=lost.name):
        back_up(tmp_path / "b.tar", data)
    assert not (tmp_path / "b.tar").exists(), "a hub that has lost a file cannot be backed up whole"


@pytest.mark.suite("hub")
def test_the_commands_back_up_restore_and_check(small_backup: Path, tmp_path: Path) -> None:
    def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ludus.cli", "hub", *map(str, arguments)], capture_output=True, text=True,
            timeout=60, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    data = tmp_path / "data"
    done = command("restore", small_backup, "--data", data)
    assert (done.returncode, done.stdout.startswith("Restored ")) == (0, True), done.stderr
    done = command("backup", tmp_path, "--data", data)
    assert (done.returncode, done.stdout.startswith(f"Wrote {tmp_path}/ludus-hub-")) == (0, True), done.stderr
    next((data / "blobs").rglob("[0-9a-f]" * 64)).unlink()
    done = command("check", "--json", "--data", data)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (1, False)
    done = command("restore", data / "hub.sqlite", "--data", tmp_path / "other")
    assert done.returncode != 0
    assert "no backup of a hub" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
