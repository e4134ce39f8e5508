"""Files by their SHA-256 digest in a bucket of an S3 object store, with a bounded cache on this machine.

How this works: an upload is received into a local file, so that its digest is known, and then put under
`{prefix}/{first two digits}/{digest}` on the condition that nothing is there (`If-None-Match`), so no object is ever
replaced. Whatever is served or installed is first read into the cache, compared with its digest on the way, and only
then used: an object that was changed is refused, and never reaches a client. Files in the cache that were
unused for longest are removed beyond its size, but none that is in use.

Credentials come from the usual environment variables only (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
`AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, and those of roles), which obstore reads, or from the files that
`AWS_ACCESS_KEY_ID_FILE` and `AWS_SECRET_ACCESS_KEY_FILE` name. Every request ends after a time, and is tried again a
few times within it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ludus.common.distribution import missing_extra
from ludus.hub.core.blobs import CHUNK_BYTES, Blobs, BlobStore, Incoming, check_digest
from ludus.hub.core.secret_files import secret_in
from ludus.protocol.errors import AuthoringError
from ludus.registry.types.errors import BlobMissing, HubUnavailable

if TYPE_CHECKING:
    from obstore.store import S3Store

SCHEME: Final = "s3://"
RETRIES: Final = 3
"""How often a request is tried again."""

RETRY_SECONDS: Final = 5.0
"""When a client should come back that found the store away."""


class S3Blobs(BlobStore):
    """Files by digest in a bucket.

    Args:
        url: `s3://bucket` or `s3://bucket/prefix`.
        cache: the folder of the cache, which is created.
        cache_bytes: the most bytes of files in the cache that are not in use.
        seconds: how long a request to the store may take, and how long it is tried again.

    Raises:
        AuthoringError: the address or an environment variable for it cannot be used.
        ModuleNotFoundError: obstore is not installed; the message has the pip command.
    """

    def __init__(self, url: str, cache: Path, cache_bytes: int, seconds: float) -> None:
        super().__init__(cache / "incoming")
        self._cache = cache
        self._cache_bytes = cache_bytes
        self._store = _open(url, seconds)
        self._lock = threading.Lock()
        self._used: Counter[str] = Counter()
        """How many use each file of the cache now; these are not removed."""
        self._fetching: dict[str, threading.Lock] = {}

    def keep(self, incoming: Incoming) -> str:
        """Put a received file under its digest, and return the digest."""
        import obstore

        incoming.flush()
        digest = incoming.sha256
        with _available(digest):
            try:
                obstore.put(self._store, _key(digest), incoming.path, mode="create")
            except obstore.exceptions.AlreadyExistsError:
                size = self.size_of(digest)
                if size != incoming.size:
                    raise BlobMissing(
                        f"the object {digest} has {size} bytes instead of {incoming.size}; restore it from a backup"
                    ) from None
        return digest

    def path(self, digest: str) -> Path:
        """Return where the cache has a file, or would have it."""
        return self._cache / check_digest(digest)[:2] / digest

    @contextmanager
    def local(self, digest: str) -> Iterator[Path]:
        """Yield a file of the cache with this digest, which is read from the store if it is not there."""
        path = self.path(digest)
        with self._lock:
            self._used[digest] += 1
            turn = self._fetching.setdefault(digest, threading.Lock())
        try:
            with turn:
                if path.is_file():
                    with contextlib.suppress(OSError):
                        os.utime(path)
                else:
                    self._fetch(digest, path)
            yield path
        finally:
            with self._lock:
                self._used[digest] -= 1
                if not self._used[digest]:
                    del self._used[digest], self._fetching[digest]
            self._evict()

    def size_of(self, digest: str) -> int:
        """Return the size of an object in bytes."""
        import obstore

        with _available(digest):
            return int(obstore.head(self._store, _key(digest))["size"])

    def read(self, digest: str) -> Iterator[bytes]:
        """Yield the content of an object in pieces."""
        import obstore

        with _available(digest):
            for piece in obstore.get(self._store, _key(digest)).stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(piece)

    def remove(self, digest: str) -> None:
        """Remove an object and its copy in the cache, if they are there."""
        import obstore

        with contextlib.suppress(BlobMissing), _available(digest):
            obstore.delete(self._store, _key(digest))
        self.path(digest).unlink(missing_ok=True)

    def digests(self) -> Iterator[str]:
        """Yield the digests of all objects."""
        import obstore

        with _available("list"):
            for page in obstore.list(self._store):
                for one in page:
                    name = one["path"].rpartition("/")[2]
                    if one["path"] == f"{name[:2]}/{name}" and len(name) == 64:
                        yield name

    def _fetch(self, digest: str, path: Path) -> None:
        draft = self._incoming / secrets.token_hex(16)
        found = hashlib.sha256()
        try:
            with draft.open("xb") as file:
                for piece in self.read(digest):
                    found.update(piece)
                    file.write(piece)
            if found.hexdigest() != digest:
                raise BlobMissing(
                    f"the object {digest} was changed: its digest is {found.hexdigest()}; restore it from a backup"
                )
            path.parent.mkdir(exist_ok=True)
            draft.replace(path)
        except OSError as error:
            raise HubUnavailable(f"the hub's cache of files cannot be written: {error.strerror or error}") from None
        finally:
            draft.unlink(missing_ok=True)

    def _evict(self) -> None:
        """Remove files that were unused for longest, until the cache is small enough."""
        with self._lock:
            files = [(path.stat(), path) for path in self._cache.glob("[0-9a-f][0-9a-f]/*")]
            total = sum(status.st_size for status, _ in files)
            for status, path in sorted(files, key=lambda one: one[0].st_mtime_ns):
                if total <= self._cache_bytes:
                    return
                if not self._used[path.name]:
                    path.unlink(missing_ok=True)
                    total -= status.st_size


def open_blobs(data: Path, url: str | None, cache_bytes: int, seconds: float) -> BlobStore:
    """Return the store of a hub's files.

    Args:
        data: the hub's data folder.
        url: `s3://bucket/prefix`; None for a folder in the data folder.
        cache_bytes, seconds: see `S3Blobs`.

    Raises:
        AuthoringError: the address cannot be used.
    """
    return Blobs(data / "blobs") if url is None else S3Blobs(url, data / "cache", cache_bytes, seconds)


def _key(digest: str) -> str:
    return f"{check_digest(digest)[:2]}/{digest}"


def _open(url: str, seconds: float) -> S3Store:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ModuleNotFoundError as error:
        raise missing_extra(error, "hub,s3") from None
    bucket, _, prefix = url.removeprefix(SCHEME).partition("/")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    options: dict[str, Any] = {"timeout": f"{seconds:g}s", "connect_timeout": f"{min(seconds, 10.0):g}s"}
    if endpoint.startswith("http://"):
        options["allow_http"] = True
    more = {"endpoint": endpoint} if endpoint else {}
    for setting in ("access_key_id", "secret_access_key"):
        if (secret := secret_in(f"AWS_{setting.upper()}_FILE")) is not None:
            more[setting] = secret
    try:
        return S3Store(
            bucket, prefix=prefix or None, client_options=options, **more,  # type: ignore[arg-type]
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=seconds)},
        )  # fmt: skip
    except (BaseError, ValueError) as error:
        raise AuthoringError(f"the object store {url} cannot be used: {_first_line(error)}") from None


@contextmanager
def _available(digest: str) -> Iterator[None]:
    """Turn the errors of a store into those of the hub.

    Raises:
        BlobMissing: the object does not exist.
        HubUnavailable: the store cannot be reached, is too slow, or refuses.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError:
        raise BlobMissing(f"the object store has lost the file {digest}; restore it from a backup") from None
    except (BaseError, OSError) as error:
        raise HubUnavailable(
            f"the hub's object store cannot be used now: {_first_line(error)}; try again", retryAfter=RETRY_SECONDS
        ) from error


def _first_line(error: BaseException) -> str:
    """Return what went wrong without the addresses of requests, which show where the store is."""
    if "no ca certificates" in str(error).lower():
        return "this machine has no CA certificates; install them, such as the package ca-certificates"
    line = str(error).strip().partition("\n")[0]
    for word in ("error sending request", "operation timed out", "PermissionDenied", "403 Forbidden", "404 Not Found"):
        if word.lower() in str(error).lower():
            return word
    return line.partition("http")[0].rstrip(" :") or type(error).__name__
