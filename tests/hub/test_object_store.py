"""Wheels in an object store: a real S3 server, and what happens when it is away, slow, or holds something else."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from free_ports import free_port
from hubs import HubProcess, Release, kind_of, new_name, publish, published, release
from object_stores import ObjectStore

from ludus.hub.core.blobs import BlobStore
from ludus.hub.core.object_store import S3Blobs
from ludus.hub.operation.backup import write_backup
from ludus.hub.operation.check import check_hub
from ludus.hub.operation.parts import open_parts
from ludus.hub.operation.restore import restore_backup
from ludus.protocol.errors import AuthoringError
from ludus.registry.types.errors import BlobMissing, HubUnavailable

LARGE = 10**9
SECONDS = 20.0


@pytest.fixture
def variables(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment variables of the store, in this process."""
    for name, value in object_store.variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(object_store: ObjectStore) -> str:
    return object_store.new_bucket()


@pytest.fixture
def blobs(variables: None, bucket: str, tmp_path: Path) -> S3Blobs:
    return S3Blobs(bucket, tmp_path / "cache", LARGE, SECONDS)


def content(blobs: BlobStore, digest: str) -> bytes:
    with blobs.local(digest) as path:
        return path.read_bytes()


def cached(blobs: S3Blobs) -> set[str]:
    return {path.name for path in blobs.path("ab" + "0" * 62).parent.parent.glob("[0-9a-f][0-9a-f]/*")}


def test_a_file_is_put_once_and_read_back(blobs: S3Blobs) -> None:
    digest = blobs.put(b"content")
    assert blobs.put(b"content") == digest
    assert (content(blobs, digest), blobs.size_of(digest), b"".join(blobs.read(digest))) == (b"content", 7, b"content")
    assert list(blobs.digests()) == [digest]


def test_an_object_is_never_replaced(blobs: S3Blobs, object_store: ObjectStore, bucket: str) -> None:
    digest = blobs.put(b"content")
    object_store.change(bucket, digest, b"changed")
    assert blobs.put(b"content") == digest
    assert b"".join(blobs.read(digest)) == b"changed"
    object_store.change(bucket, digest, b"of another size")
    with pytest.raises(BlobMissing, match="instead of 7"):
        blobs.put(b"content")


def test_a_changed_object_is_refused_and_not_cached(blobs: S3Blobs, object_store: ObjectStore, bucket: str) -> None:
    digest = blobs.put(b"content")
    object_store.change(bucket, digest, b"changed")
    with pytest.raises(BlobMissing, match="was changed"), blobs.local(digest):
        pass
    assert cached(blobs) == set()
    object_store.change(bucket, digest, b"content")
    assert content(blobs, digest) == b"content"


def test_a_lost_object_is_missing(blobs: S3Blobs) -> None:
    for use in (
        lambda: content(blobs, "ab" * 32),
        lambda: blobs.size_of("ab" * 32),
        lambda: list(blobs.read("ab" * 32)),
    ):
        with pytest.raises(BlobMissing, match="has lost"):
            use()


def test_the_cache_keeps_what_was_used_last_and_what_is_in_use(variables: None, bucket: str, tmp_path: Path) -> None:
    blobs = S3Blobs(bucket, tmp_path / "cache", 25, SECONDS)
    one, two, three = (blobs.put(letter * 10) for letter in (b"1", b"2", b"3"))
    for digest in (one, two):
        content(blobs, digest)
    assert cached(blobs) == {one, two}
    content(blobs, three)
    assert cached(blobs) == {two, three}
    with blobs.local(two) as path:
        for digest in (one, three, one):
            content(blobs, digest)
        assert path.read_bytes() == b"2" * 10, "it is in use"
    assert len(cached(blobs)) == 2


def test_many_that_want_one_file_read_it_once(blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = blobs.put(b"content")
    reads: list[str] = []
    read = blobs.read

    def counted(digest: str) -> Iterator[bytes]:
        reads.append(digest)
        return read(digest)

    monkeypatch.setattr(blobs, "read", counted)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: content(blobs, digest), range(16))) == {b"content"}
    assert reads == [digest]


@pytest.mark.parametrize("url", ["s3://", "s3://UPPER/x", "gs://bucket", "s3://bucket/?x", "bucket"])
def test_an_address_that_is_none_is_refused_by_the_command(url: str, tmp_path: Path) -> None:
    from pydantic import ValidationError

    from ludus.hub.settings.hub import HubSettings

    with pytest.raises(ValidationError, match="s3://BUCKET"):
        HubSettings(data=tmp_path, blobs=url)


def test_a_store_that_refuses_connections_is_unavailable(
    variables: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port = free_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    blobs = S3Blobs("s3://bucket", tmp_path / "cache", LARGE, SECONDS)
    for use in (lambda: blobs.put(b"x"), lambda: content(blobs, "ab" * 32), lambda: list(blobs.digests())):
        with pytest.raises(HubUnavailable, match="try again") as error:
            use()
        assert str(port) not in error.value.message, "clients need not know where the store is"
    assert list((tmp_path / "cache" / "incoming").iterdir()) == []


def test_a_store_that_never_answers_is_given_up(
    variables: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        blobs = S3Blobs("s3://bucket", tmp_path / "cache", LARGE, 0.2)
        with pytest.raises(HubUnavailable, match="try again"):
            content(blobs, "ab" * 32)


def test_wrong_credentials_are_no_lost_file(variables: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    def refuse(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=refuse, args=(server,), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        blobs = S3Blobs("s3://bucket", tmp_path / "cache", LARGE, SECONDS)
        with pytest.raises(HubUnavailable) as error:
            content(blobs, "ab" * 32)
        assert not isinstance(error.value, BlobMissing)
        server.shutdown(socket.SHUT_RDWR)


# ── a hub over it ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def store_hub(object_store: ObjectStore, bucket: str, tmp_path: Path) -> Iterator[HubProcess]:
    """A hub whose wheels lie in a bucket of their own."""
    hub = HubProcess(tmp_path / "data", "--no-seed", "--blobs", bucket, variables=object_store.variables)
    yield hub
    assert hub.stop() == 0


@pytest.mark.suite("hub")
def test_pip_installs_from_a_hub_over_an_object_store(
    store_hub: HubProcess, object_store: ObjectStore, bucket: str, tmp_path: Path
) -> None:
    one = release(f"alice/{new_name()}")
    with store_hub.client() as client:
        info = published(client, one)
        assert not (store_hub.data / "blobs").exists()
        answer = client.get(info["url"])
        assert (answer.content, answer.headers["content-length"]) == (one.wheel, str(len(one.wheel)))
        assert client.get(info["url"] + ".metadata").text.startswith("Metadata-Version")
        assert client.get(info["url"], headers={"range": "bytes=0-3"}).content == b"PK\x03\x04"
    target = f"{one.manifest.id.replace('/', '-')} @ {info['url']}#sha256={one.sha256}"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir", "--target", str(tmp_path / "t")]
    done = subprocess.run([*pip, target], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "t").glob("alice_*.py"))


@pytest.mark.suite("hub")
def test_a_hub_refuses_to_serve_a_changed_object_and_to_lose_an_upload(
    store_hub: HubProcess, object_store: ObjectStore, bucket: str
) -> None:
    one, two = release(f"alice/{new_name()}"), release(f"alice/{new_name()}")
    with store_hub.client() as client:
        info = published(client, one)
        object_store.change(bucket, one.sha256, b"evil" + one.wheel[4:])
        answer = client.get(info["url"])
        assert (answer.status_code, kind_of(answer)) == (503, "BlobMissing")
        object_store.change(bucket, one.sha256, None)
        answer = client.get(info["url"])
        assert (answer.status_code, kind_of(answer)) == (503, "BlobMissing")
        object_store.stop()
        try:
            answer = publish(client, two)
            assert (answer.status_code, kind_of(answer)) == (503, "HubUnavailable")
            assert client.get(f"/api/v1/environments/{two.manifest.id}").status_code == 404, "no version by half"
            assert client.get("/health").status_code == 200
            assert client.get(f"/api/v1/environments/{one.manifest.id}").status_code == 200
        finally:
            object_store.start()
        httpx.put(f"{object_store.url}/{bucket.split('/')[2]}")
        published(client, two)


@pytest.mark.suite("hub")
@pytest.mark.parametrize("way", ["to the store", "from the store"])
def test_a_backup_moves_a_hub_to_an_object_store_and_back(
    variables: None, bucket: str, tmp_path: Path, way: str
) -> None:
    before, after = (None, bucket) if way == "to the store" else (bucket, None)
    options = ["--blobs", before] if before else []
    hub = HubProcess(tmp_path / "before", "--no-seed", *options)
    one: Release = release("alice/coin")
    with hub.client() as client:
        published(client, one)
    hub.stop()
    with open_parts(tmp_path / "before", blobs=before) as parts:
        backup, _ = write_backup(parts, tmp_path)
    with open_parts(tmp_path / "after", blobs=after, new=True) as parts:
        restore_backup(parts, backup)
        assert check_hub(parts).problems == []
        assert content(parts.blobs, one.sha256) == one.wheel


def test_a_missing_endpoint_address_is_an_error_of_the_operator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no address")
    with pytest.raises((AuthoringError, HubUnavailable)):
        S3Blobs("s3://bucket", tmp_path / "cache", LARGE, SECONDS).put(b"x")
