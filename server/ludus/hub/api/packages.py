"""The JSON API of the registry, under /api/v1.

    GET    /environments?q=&tag=&page=                     SearchResult
    GET    /environments/{owner}/{name}                    PackageSummary
    GET    /environments/{owner}/{name}/versions           VersionList
    GET    /environments/{owner}/{name}/versions/{version} VersionInfo (`latest` for the latest)
    POST   /environments/{owner}/{name}/versions           publish: a form with wheel, manifest, card, signature,
                                                           validation, visibility → VersionInfo
    POST   /environments/{owner}/{name}/versions/{version}/yank    YankParams → VersionInfo
    DELETE /environments/{owner}/{name}/versions/{version}/yank    VersionInfo
    GET    /environments/{owner}/{name}/owners             OwnerList; PUT and DELETE …/owners/{principal}
    GET    /environments/{owner}/{name}/access             Access; PUT; PUT and DELETE …/readers/{principal}
    GET    /owners/{owner}/keys                            KeyList; POST (one key) and DELETE …/keys?key=

A private package is absent for those who may not read it. Accounts and tokens: `ludus.hub.api.accounts`.

Errors are `{"error": {"code", "message", "data"}}`, and `data.kind` names the class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, ValidationError

from ludus.hub.parts.hub import Hub
from ludus.hub.registry.catalog import PackageCatalog
from ludus.hub.registry.publishing import Upload
from ludus.hub.registry.uploads import Form, UploadSlots
from ludus.protocol.bounds import check_json
from ludus.protocol.errors import LudusError, ParseError, PayloadTooLarge
from ludus.protocol.messages import describe_invalid
from ludus.registry.types.errors import ManifestRefused, SignatureRefused, UploadRefused
from ludus.registry.types.packages import (
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
from ludus.registry.types.people import Access, AccessChange, HubScope
from ludus.registry.types.strict_json import read_strict

M = TypeVar("M", bound=BaseModel)

PARTS = ("manifest", "card", "signature", "validation", "visibility")
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


class AccessBody(AccessChange):
    """`AccessChange`, built now."""

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
        request: Request,
        q: Annotated[str, Query(max_length=200, description="Words; each is a prefix.")] = "",
        tag: Annotated[list[str] | None, Query(max_length=10, description="A tag; repeatable.")] = None,
        page: Annotated[int, Query(ge=1, le=MOST_PAGES)] = 1,
        size: Annotated[int, Query(ge=1, le=100)] = PAGE_SIZE,
    ) -> SearchResult:
        packages, total = hub.catalog(request).search(q, tag or (), page, size)
        return SearchResult(packages=tuple(packages), total=total, page=page, page_size=size)

    @routes.get("/environments/{owner}/{name}", tags=["Catalog"], summary="Show a package")
    def package(request: Request, owner: str, name: str) -> PackageSummary:
        return hub.catalog(request).environment(owner, name)

    @routes.get("/environments/{owner}/{name}/versions", tags=["Catalog"], summary="List its versions")
    def versions(request: Request, owner: str, name: str) -> VersionList:
        catalog = hub.catalog(request)
        latest = catalog.environment(owner, name).version
        return VersionList(id=f"{owner}/{name}", latest=latest, versions=tuple(catalog.versions(owner, name)))

    @routes.get("/environments/{owner}/{name}/versions/{version}", tags=["Catalog"], summary="Show a version")
    def version_of(request: Request, owner: str, name: str, version: str) -> VersionInfo:
        return hub.version_info(request, hub.catalog(request).version(owner, name, version))


def _add_publishing(routes: APIRouter, hub: Hub) -> None:
    slots = UploadSlots(hub.blobs, hub.settings.limits)

    @routes.post(
        "/environments/{owner}/{name}/versions", tags=["Publish"], summary="Publish a version", status_code=201
    )
    async def publish(request: Request, owner: str, name: str) -> VersionInfo:
        viewer = await run_in_threadpool(hub.authenticator.principal, request)
        viewer.require(HubScope.PUBLISH, f"{owner}/{name}")
        async with slots.receive(request, "wheel", PARTS) as form:
            upload = _upload(form, f"{owner}/{name}", hub)
            private = await run_in_threadpool(hub.publisher.publish, viewer, upload)
        hub.counts["published"] += not private
        hub.counts["published_bytes"] += 0 if private else upload.wheel.size
        title = f"{owner}/{name} {upload.manifest.version}"
        await run_in_threadpool(hub.people.note_of, viewer, request, "published", title, owner)
        catalog = hub.catalog_of(viewer, HubScope.PUBLISH)
        return hub.version_info(request, await run_in_threadpool(catalog.version, owner, name, upload.manifest.version))

    def set_yanked(request: Request, owner: str, name: str, version: str, reason: str | None) -> VersionInfo:
        viewer = hub.authenticator.principal(request)
        hub.publisher.yank(viewer, owner, name, version, reason)
        record = hub.catalog_of(viewer, HubScope.PUBLISH).version(owner, name, version)
        action = "yanked" if reason is not None else "yank undone"
        hub.people.note_of(viewer, request, action, f"{record.id} {record.version}", owner)
        return hub.version_info(request, record)

    @routes.post("/environments/{owner}/{name}/versions/{version}/yank", tags=["Publish"], summary="Yank a version")
    def yank(request: Request, owner: str, name: str, version: str, body: YankBody) -> VersionInfo:
        return set_yanked(request, owner, name, version, body.reason)

    @routes.delete("/environments/{owner}/{name}/versions/{version}/yank", tags=["Publish"], summary="Undo a yank")
    def unyank(request: Request, owner: str, name: str, version: str) -> VersionInfo:
        return set_yanked(request, owner, name, version, None)


def _add_ownership(routes: APIRouter, hub: Hub) -> None:
    def changed(request: Request, action: str, subject: str, owner: str) -> PackageCatalog:
        """Note a change, and return what its sender now sees."""
        viewer = hub.authenticator.principal(request, counted=False)
        hub.people.note_of(viewer, request, action, subject, owner)
        return hub.catalog_of(viewer, HubScope.ACCOUNT)

    @routes.get("/environments/{owner}/{name}/owners", tags=["Owners"], summary="List who may publish versions")
    def owners(request: Request, owner: str, name: str) -> OwnerList:
        return OwnerList(id=f"{owner}/{name}", owners=hub.catalog(request).owners(owner, name))

    @routes.put("/environments/{owner}/{name}/owners/{other}", tags=["Owners"], summary="Let another one publish")
    def add_owner(request: Request, owner: str, name: str, other: str) -> OwnerList:
        hub.ownership.add(hub.authenticator.principal(request), owner, name, other)
        catalog = changed(request, "owner added", f"{owner}/{name}: {other}", owner)
        return OwnerList(id=f"{owner}/{name}", owners=catalog.owners(owner, name))

    @routes.delete("/environments/{owner}/{name}/owners/{other}", tags=["Owners"], summary="Take that right away")
    def remove_owner(request: Request, owner: str, name: str, other: str) -> OwnerList:
        hub.ownership.remove(hub.authenticator.principal(request), owner, name, other)
        catalog = changed(request, "owner removed", f"{owner}/{name}: {other}", owner)
        return OwnerList(id=f"{owner}/{name}", owners=catalog.owners(owner, name))

    @routes.get("/owners/{owner}/keys", tags=["Owners"], summary="List an owner's public keys")
    def keys(request: Request, owner: str) -> KeyList:
        return KeyList(owner=owner, keys=hub.catalog(request).keys(owner))

    @routes.post("/owners/{owner}/keys", tags=["Owners"], summary="Add a public key")
    def add_key(request: Request, owner: str, body: NewKey) -> KeyList:
        hub.ownership.add_key(hub.authenticator.principal(request), owner, body.key)
        return KeyList(owner=owner, keys=changed(request, "key added", body.key, owner).keys(owner))

    @routes.delete("/owners/{owner}/keys", tags=["Owners"], summary="Remove a public key")
    def remove_key(request: Request, owner: str, key: Annotated[str, Query(max_length=100)]) -> KeyList:
        hub.ownership.remove_key(hub.authenticator.principal(request), owner, key)
        return KeyList(owner=owner, keys=changed(request, "key removed", key, owner).keys(owner))

    _add_access(routes, hub, changed)


def _add_access(routes: APIRouter, hub: Hub, changed: Callable[[Request, str, str, str], PackageCatalog]) -> None:
    place = "/environments/{owner}/{name}"

    def access(catalog: PackageCatalog, owner: str, name: str) -> Access:
        private, readers = catalog.readers(owner, name)
        return Access(id=f"{owner}/{name}", private=private, readers=readers)

    @routes.get(f"{place}/access", tags=["Access"], summary="Show whether it is private, and its readers")
    def show(request: Request, owner: str, name: str) -> Access:
        viewer = hub.authenticator.principal(request)
        hub.ownership.check_owner(viewer, owner, name)
        return access(hub.catalog_of(viewer, HubScope.ACCOUNT), owner, name)

    @routes.put(f"{place}/access", tags=["Access"], summary="Make it private or public")
    def set_private(request: Request, owner: str, name: str, body: AccessBody) -> Access:
        viewer = hub.authenticator.principal(request)
        if body.private:
            hub.check_hides(f"{owner}/{name}")
        hub.ownership.set_private(viewer, owner, name, private=body.private)
        action = "made private" if body.private else "made public"
        return access(changed(request, action, f"{owner}/{name}", owner), owner, name)

    @routes.put(f"{place}/readers/{{other}}", tags=["Access"], summary="Let another one read it while it is private")
    def add_reader(request: Request, owner: str, name: str, other: str) -> Access:
        hub.ownership.add_reader(hub.authenticator.principal(request), owner, name, other)
        return access(changed(request, "reader added", f"{owner}/{name}: {other}", owner), owner, name)

    @routes.delete(f"{place}/readers/{{other}}", tags=["Access"], summary="Take that right away")
    def remove_reader(request: Request, owner: str, name: str, other: str) -> Access:
        hub.ownership.remove_reader(hub.authenticator.principal(request), owner, name, other)
        return access(changed(request, "reader removed", f"{owner}/{name}: {other}", owner), owner, name)


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
    visibility = form.one("visibility")
    if visibility not in (None, "private"):
        raise UploadRefused(f"the part 'visibility' is {ascii(visibility[:20])}; it takes 'private' only")
    card, private = form.one("card") or "", visibility is not None
    if private:
        hub.check_hides(package_id)
    return Upload(form.wheel, form.filename, manifest, card, signed, validation, private)


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
        read_strict(text, f"the {name}")  # part of it is signed
        return model.model_validate_json(text)
    except ParseError as error:
        raise refusal(error.message) from None
    except ValidationError as error:
        details: list[Any] = error.errors(include_url=False)
        first = details[0]
        place = ".".join(str(part) for part in first["loc"])
        raise refusal(f"the {name} is not valid: {place + ': ' if place else ''}{describe_invalid(first)}") from None
