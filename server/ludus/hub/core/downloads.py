"""Answers that are files of the hub, by their digests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from ludus.hub.core.blobs import BlobStore

SHARED: Final = {"cache-control": "public, no-cache"}
"""The headers of files, which never change under their address. Caches keep them, and ask before each use whether they
are still served: a block holds for what a client, a proxy or a mirror has in its cache, too."""

PRIVATE: Final = {"cache-control": "private, no-store"}
"""The headers of files of private packages, which no cache between may give to others."""


def etag_of(digest: str) -> str:
    """Return the entity tag of a file."""
    return f'"{digest}"'


class BlobResponse(FileResponse):
    """A file by its digest, which stays on this machine until it was sent.

    Args:
        blobs: the files.
        digest: its digest.
        kind: its media type.
        headers: the headers, which say who may keep it.

    Raises:
        BlobMissing: there is no such file, or it is not what it was.
        HubUnavailable: the object store cannot be used.
    """

    def __init__(self, blobs: BlobStore, digest: str, kind: str, headers: Mapping[str, str]) -> None:
        self._held = ExitStack()
        path = self._held.enter_context(blobs.local(digest))
        super().__init__(path, media_type=kind, headers={**headers, "etag": etag_of(digest)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._held:
            await super().__call__(scope, receive, send)
