"""The JSON API of the registry, under /api/v1.

    GET    /environments?q=&tag=&page=                     SearchResult
    GET    /environments/{owner}/{name}                    PackageSummary
    GET    /environments/{owner}/{name}/versions           VersionList
    GET    /environments/{owner}/{name}/versions/{version} VersionInfo (`latest` for the latest)
    POST   /environments/{owner}/{name}/versions           publish: a form with wheel, manifest, card, signature,
                                                           validation → VersionInfo
    POST   /environments/{owner}/{name}/versions/{version}/yank    YankParams → VersionInfo
    DELETE /environments/{owner}/{name}/versions/{version}/yank    VersionInfo
    GET    /environments/{owner}/{name}/owners             OwnerList; PUT and DELETE …/owners/{principal}
    GET    /owners/{owner}/keys                            KeyList; POST (one key) and DELETE …/keys?key=

Errors are `{"error": {"code", "message", "data"}}`, and `data.kind` names the class.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, ValidationError

from ludus.hub.hub import Hub
from ludus.hub.registry.publishing import Upload
from ludus.hub.uploads import Form, UploadSlots
from ludus.protocol.bounds import check_json
from ludus.protocol.errors import LudusError, PayloadTooLarge
from ludus.protocol.messages import describe_invalid
from ludus.protocol.registry import (
    PAGE_SIZE,
    KeyList,
    Manifest,
    OwnerList,
    PackageSummary,
    PublicKey,
    SearchResult,
    Signed,
    ValidationSummary,
    VersionInfo,
    VersionList,
    YankParams,
)
from ludus.protocol.registry_errors import ManifestRefused, SignatureRefused, UploadRefused

M = TypeVar("M", bound=BaseModel)

PARTS = ("manifest", "card", "signature", "validation")
"""The parts of a published form besides the file `wheel`."""

MOST_PAGES = 100_000
"""The greatest number of a page."""


class NewKey(BaseModel):
    """A key to add to an owner."""

    model_config = ConfigDict(extra="forbid")

    key: PublicKey


class YankBody(YankParams):
    """`YankParams`, built now: FastAPI cannot describe a body whose type is built at its first use."""

    model_config = ConfigDict(defer_build=False)


def router(hub: Hub) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/api/v1")
    _add_reading(routes, hub)
    _add_publishing(routes, hub)
    _add_ownership(routes, hub)
    return routes


def _add_reading(routes: APIRouter, hub: Hub) -> None:
    @routes.get("/environments", tags=["Catalog"], summary="Search the catalog")
    def search(
        q: Annotated[str, Query(max_length=200, description="Words; each is a prefix.")] = "",
        tag: Annotated[list[str] | None, Query(max_length=10, description="A tag; repeatable.")] = None,
        page: Annotated[int, Query(ge=1, le=MOST_PAGES)] = 1,
        size: Annotated[int, Query(ge=1, le=100)] = PAGE_SIZE,
    ) -> SearchResult:
        packages, total = hub.registry.search(q, tag or (), page, size)
        return SearchResult(packages=tuple(packages), total=total, page=page, page_size=size)

    @routes.get("/environments/{owner}/{name}", tags=["Catalog"], summary="Show a package")
    def package(owner: str, name: str) -> PackageSummary:
        return hub.registry.environment(owner, name)

    @routes.get("/environments/{owner}/{name}/versions", tags=["Catalog"], summary="List its versions")
    def versions(owner: str, name: str) -> VersionList:
        latest = hub.registry.environment(owner, name).version
        return VersionList(id=f"{owner}/{name}", latest=latest, versions=tuple(hub.registry.versions(owner, name)))

    @routes.get("/environments/{owner}/{name}/versions/{version}", tags=["Catalog"], summary="Show a version")
    def version_of(request: Request, owner: str, name: str, version: str) -> VersionInfo:
        return hub.version_info(request, hub.registry.version(owner, name, version))


def _add_publishing(routes: APIRouter, hub: Hub) -> None:
    slots = UploadSlots(hub.blobs, hub.settings.limits)

    @routes.post(
        "/environments/{owner}/{name}/versions", tags=["Publish"], summary="Publish a version", status_code=201
    )
    async def publish(request: Request, owner: str, name: str) -> VersionInfo:
        principal = await run_in_threadpool(hub.authenticator.principal, request)
        async with slots.receive(request, "wheel", PARTS) as form:
            upload = _upload(form, f"{owner}/{name}", hub)
            await run_in_threadpool(hub.publisher.publish, principal, upload)
        hub.counts["published"] += 1
        hub.counts["published_bytes"] += upload.wheel.size
        record = await run_in_threadpool(hub.registry.version, owner, name, upload.manifest.version)
        return hub.version_info(request, record)

    def set_yanked(request: Request, owner: str, name: str, version: str, reason: str | None) -> VersionInfo:
        principal = hub.authenticator.principal(request)
        hub.publisher.yank(principal, owner, name, version, reason)
        return hub.version_info(request, hub.registry.version(owner, name, version))

    @routes.post("/environments/{owner}/{name}/versions/{version}/yank", tags=["Publish"], summary="Yank a version")
    def yank(request: Request, owner: str, name: str, version: str, body: YankBody) -> VersionInfo:
        return set_yanked(request, owner, name, version, body.reason)

    @routes.delete("/environments/{owner}/{name}/versions/{version}/yank", tags=["Publish"], summary="Undo a yank")
    def unyank(request: Request, owner: str, name: str, version: str) -> VersionInfo:
        return set_yanked(request, owner, name, version, None)


def _add_ownership(routes: APIRouter, hub: Hub) -> None:
    @routes.get("/environments/{owner}/{name}/owners", tags=["Owners"], summary="List who may publish versions")
    def owners(owner: str, name: str) -> OwnerList:
        return OwnerList(id=f"{owner}/{name}", owners=hub.registry.owners(owner, name))

    @routes.put("/environments/{owner}/{name}/owners/{other}", tags=["Owners"], summary="Let another one publish")
    def add_owner(request: Request, owner: str, name: str, other: str) -> OwnerList:
        hub.ownership.add(hub.authenticator.principal(request), owner, name, other)
        return owners(owner, name)

    @routes.delete("/environments/{owner}/{name}/owners/{other}", tags=["Owners"], summary="Take that right away")
    def remove_owner(request: Request, owner: str, name: str, other: str) -> OwnerList:
        hub.ownership.remove(hub.authenticator.principal(request), owner, name, other)
        return owners(owner, name)

    @routes.get("/owners/{owner}/keys", tags=["Owners"], summary="List an owner's public keys")
    def keys(owner: str) -> KeyList:
        return KeyList(owner=owner, keys=hub.registry.keys(owner))

    @routes.post("/owners/{owner}/keys", tags=["Owners"], summary="Add a public key")
    def add_key(request: Request, owner: str, body: NewKey) -> KeyList:
        hub.ownership.add_key(hub.authenticator.principal(request), owner, body.key)
        return keys(owner)

    @routes.delete("/owners/{owner}/keys", tags=["Owners"], summary="Remove a public key")
    def remove_key(request: Request, owner: str, key: Annotated[str, Query(max_length=100)]) -> KeyList:
        hub.ownership.remove_key(hub.authenticator.principal(request), owner, key)
        return keys(owner)


def _upload(form: Form, package_id: str, hub: Hub) -> Upload:
    """Return what a form holds.

    Raises:
        UploadRefused: a part is missing.
        ManifestRefused, SignatureRefused: a part is invalid.
    """
    if form.filename is None:
        raise UploadRefused("the upload has no file 'wheel'")
    limits = hub.settings.limits
    for name, most in (
        ("manifest", limits.manifest_bytes),
        ("card", limits.card_bytes),
        ("validation", limits.validation_bytes),
    ):
        if len((form.one(name) or "").encode()) > most:
            raise PayloadTooLarge(f"the {name} is larger than the {most} bytes this hub accepts", limit=f"{name}_bytes")
    manifest = parse_part(form, "manifest", Manifest, ManifestRefused)
    if manifest is None:
        raise UploadRefused("the upload has no part 'manifest'")
    if manifest.id != package_id:
        raise ManifestRefused(f"the manifest is of {manifest.id}, and the address is of {package_id[:120]}")
    signed = parse_part(form, "signature", Signed, SignatureRefused)
    if signed is None:
        raise SignatureRefused("the upload has no part 'signature'; `ludus publish` makes one")
    validation = parse_part(form, "validation", ValidationSummary, UploadRefused)
    return Upload(form.wheel, form.filename, manifest, form.one("card") or "", signed, validation)


def parse_part(form: Form, name: str, model: type[M], refusal: Callable[..., LudusError]) -> M | None:
    """Return a part of a form as a model; None if the form does not have it.

    Raises:
        LudusError: the part is not valid; its class is `refusal`.
        PayloadTooLarge: it is JSON with too many values.
    """
    text = form.one(name)
    if text is None:
        return None
    check_json(text.encode())
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        details: list[Any] = error.errors(include_url=False)
        first = details[0]
        place = ".".join(str(part) for part in first["loc"])
        raise refusal(f"the {name} is not valid: {place + ': ' if place else ''}{describe_invalid(first)}") from None
    except (RecursionError, json.JSONDecodeError):
        raise refusal(f"the {name} is not valid JSON") from None
