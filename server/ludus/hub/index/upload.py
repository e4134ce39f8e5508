"""The legacy upload API, which twine and `uv publish` speak. What it receives has no signature and is marked so."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse

from ludus.hub.access.names import id_of_distribution
from ludus.hub.access.viewers import Viewer
from ludus.hub.core.blobs import CHUNK_BYTES, Incoming
from ludus.hub.parts.hub import Hub
from ludus.hub.registry.uploads import Form, UploadSlots
from ludus.registry.types.errors import DigestMismatch, UploadRefused

_HEX: Final = re.compile(r"[0-9a-fA-F]+")


def router(hub: Hub) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Package index"])
    slots = UploadSlots(hub.blobs, hub.settings.limits)

    @routes.post("/index/upload/", summary="Upload a wheel, as twine does", response_class=PlainTextResponse)
    @routes.post("/index/upload", include_in_schema=False)
    async def upload(request: Request) -> PlainTextResponse:
        viewer = await run_in_threadpool(hub.authenticator.principal, request)
        async with slots.receive(request, "content") as form:
            private = await run_in_threadpool(_publish, hub, viewer, form)
            title = f"{form.filename} (unsigned)"
        owner, _ = id_of_distribution((form.filename or "").partition("-")[0])  # its form was checked
        await run_in_threadpool(hub.people.note_of, viewer, request, "published", title, owner)
        hub.counts["uploaded_unsigned"] += not private
        return PlainTextResponse("published without a signature\n")

    return routes


def _publish(hub: Hub, viewer: Viewer, form: Form) -> bool:
    action = form.one(":action")
    if action != "file_upload":
        raise UploadRefused(f"the form asks for {ascii((action or 'nothing')[:60])}; this index takes file_upload only")
    if form.filename is None:
        raise UploadRefused("the form has no file 'content'")
    if form.one("filetype") not in (None, "bdist_wheel"):
        raise UploadRefused(f"{ascii(form.filename[:120])} is not a wheel; this index takes wheels only")
    form.wheel.flush()
    digests = {name: form.one(f"{name}_digest") for name in ("sha256", "blake2_256", "md5")}
    check_digests(form.wheel, {name: digest for name, digest in digests.items() if digest})
    return hub.publisher.publish_unsigned(viewer, form.wheel, form.filename)


def check_digests(file: Incoming, stated: Mapping[str, str]) -> None:
    """Compare a file with the digests that a client states.

    Args:
        file: the file.
        stated: digests in hexadecimal by the names `sha256`, `blake2_256` and `md5`.

    Raises:
        UploadRefused: neither `sha256` nor `blake2_256` is stated.
        DigestMismatch: one differs.
    """
    if not stated.keys() & {"sha256", "blake2_256"}:
        raise UploadRefused("the form states no sha256_digest or blake2_256_digest of the file")
    found = {"sha256": file.sha256} | {name: _digest(file.path, name) for name in stated if name != "sha256"}
    for name, digest in stated.items():
        if not _HEX.fullmatch(digest) or digest.lower() != found[name]:
            raise DigestMismatch(
                f"the file that arrived has the {name} digest {found[name]}, and the form says {ascii(digest[:128])}; "
                "upload it again"
            )


def _digest(path: Path, name: str) -> str:
    digest = hashlib.blake2b(digest_size=32) if name == "blake2_256" else hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()
