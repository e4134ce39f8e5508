"""The addresses of discovery. All of them only read, need no token, and may be read by any web page.

    GET /.well-known/ai-catalog.json                         the AI catalog: a server card of each package
    GET /.well-known/mcp/server-card.json                    the same, where older clients look
    GET /e/{owner}/{name}[@version]/mcp/server-card          the card of an endpoint, which it need not run for
    GET /v0.1/servers                                        the registry API: all versions, by page
    GET /v0.1/servers/{server}/versions                      those of one server
    GET /v0.1/servers/{server}/versions/{version}            one of them; `latest` for the latest
    GET /api/v1/environments/{owner}/{name}/versions/{version}/server.json

Answers have an `ETag`, and are empty with status 304 for a client that has them already. Caches may share them only if
the hub's public address is set: otherwise the addresses in them follow the `Host` of each request.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ludus.hub.discovery.documents import CARD_TYPE, CATALOG_TYPE, Documents
from ludus.hub.discovery.listing import Listing
from ludus.hub.discovery.names import names_of
from ludus.hub.discovery.paths import AI_CATALOG, CARD, CARD_ALIAS, REGISTRY
from ludus.hub.parts.hub import Hub
from ludus.protocol.errors import InvalidParams, LudusError
from ludus.protocol.messages import describe_invalid
from ludus.registry.types.errors import PackageNotFound

JSON_TYPE: Final = "application/json"
AI_CATALOG_VERSION: Final = "1.0"

FRESH_SECONDS: Final = 300
"""How long a cache may serve an answer without asking again."""

_CORS: Final = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "Content-Type, If-None-Match",
    "access-control-expose-headers": "ETag",
}
_REMEMBERED: Final = 8
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)

Make = Callable[[Request, Documents], bytes]


class ServersQuery(BaseModel):
    """The parameters of the registry API; others are ignored, as the official registry ignores them."""

    model_config = ConfigDict(extra="ignore")

    limit: Annotated[int, Field(ge=1, le=100)] = 30
    cursor: Annotated[str, Field(max_length=200)] | None = None
    search: Annotated[str, Field(max_length=200)] = ""
    updated_since: Annotated[AwareDatetime, Field(ge=_FIRST, lt=_LAST)] | None = None
    version: Annotated[str, Field(max_length=60)] | None = None


def mount_discovery(app: FastAPI, hub: Hub) -> None:
    """Add the routes. They come before those of endpoints, which match every address below `/e/`."""
    pages = DiscoveryPages(hub)
    servers, card = f"{REGISTRY}/{{namespace}}/{{server}}/versions", f"/e/{{owner}}/{{name}}{CARD}"
    version = "/api/v1/environments/{owner}/{name}/versions/{version}/server.json"
    for path, make, kind in (
        (AI_CATALOG, pages.catalog, CATALOG_TYPE),
        (CARD_ALIAS, pages.catalog, CATALOG_TYPE),
        (card, pages.card, CARD_TYPE),
        (version, pages.server_json, JSON_TYPE),
        (REGISTRY, _as_registry(pages.servers), JSON_TYPE),
        (servers, _as_registry(pages.versions), JSON_TYPE),
        (f"{servers}/{{version}}", _as_registry(pages.version), JSON_TYPE),
    ):
        app.router.routes.append(Route(path, pages.answer(make, kind), methods=["GET", "OPTIONS"]))


class RegistryError(Exception):
    """A refusal in the form of the registry API, whose `error` is a text."""

    def __init__(self, error: LudusError) -> None:
        super().__init__(error.message)
        self.response = JSONResponse({"error": error.message}, error.http_status, headers=_CORS)


def _as_registry(make: Make) -> Make:
    """Return a function that refuses as the registry API does."""

    def made(request: Request, documents: Documents) -> bytes:
        try:
            return make(request, documents)
        except LudusError as error:
            raise RegistryError(error) from error

    return made


class DiscoveryPages:
    """Makes the answers.

    Args:
        hub: the hub.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._listing = Listing(hub.database)
        self._catalogs: dict[str, tuple[datetime, bytes]] = {}
        """The AI catalog for each address of the hub, with the last change that it has; it has a limited size."""
        self._making = threading.Lock()

    def answer(self, make: Make, kind: str) -> Callable[[Request], Any]:
        """Return the endpoint of a route.

        Args:
            make: makes the body; it may block.
            kind: the media type.
        """

        async def endpoint(request: Request) -> Response:
            if request.method == "OPTIONS":
                return Response(status_code=204, headers=_CORS)
            try:
                body = await run_in_threadpool(lambda: make(request, self._documents(request)))
            except RegistryError as error:
                return error.response
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            shared = self._hub.settings.public_url is not None
            headers = {**_CORS, "etag": tag}
            headers["cache-control"] = f"public, max-age={FRESH_SECONDS}" if shared else "no-cache"
            if tag in [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]:
                return Response(status_code=304, headers=headers)
            return Response(body, media_type=kind, headers=headers)

        return endpoint

    def catalog(self, request: Request, documents: Documents) -> bytes:
        """Return the AI catalog; it is made again only after something has changed."""
        base, changed = self._hub.base_url(request), self._listing.changed_at()
        with self._making:
            known = self._catalogs.get(base)
            if known is not None and known[0] == changed:
                return known[1]
            rows = self._listing.catalog()
            host = {"displayName": f"Ludus hub at {documents.names.domain}", "documentationUrl": f"{base}/"}
            entries = [documents.catalog_entry(row) for row in rows]
            body = _encode({"specVersion": AI_CATALOG_VERSION, "host": host, "entries": entries})
            if len(self._catalogs) >= _REMEMBERED:
                self._catalogs.pop(next(iter(self._catalogs)))
            self._catalogs[base] = (changed, body)
            return body

    def card(self, request: Request, documents: Documents) -> bytes:
        """Return the card of an endpoint.

        Raises:
            PackageNotFound: there is no such package or version, or it is not signed.
        """
        name, _, version = request.path_params["name"].partition("@")
        listed = self._listing.version(request.path_params["owner"], name, version or None)
        return _encode(documents.server_card(listed, pinned=bool(version)))

    def server_json(self, request: Request, documents: Documents) -> bytes:
        """Return `server.json` of a version.

        Raises:
            PackageNotFound: there is no such version, or it is not signed.
        """
        where = request.path_params
        return _encode(documents.server_json(self._listing.version(where["owner"], where["name"], where["version"])))

    def servers(self, request: Request, documents: Documents) -> bytes:
        """Return one page of the registry.

        Raises:
            InvalidParams: a parameter is not valid.
        """
        try:
            query = ServersQuery.model_validate(dict(request.query_params))
        except ValidationError as error:
            first: Any = error.errors(include_url=False)[0]
            raise InvalidParams(f"{'.'.join(map(str, first['loc']))}: {describe_invalid(first)}") from None
        needle = documents.names.needle(query.search)
        if needle is None:
            return _list(documents, [], None)
        since = query.updated_since.astimezone(UTC) if query.updated_since is not None else None
        listed, cursor = self._listing.page(query.limit, query.cursor or None, needle, since, query.version or None)
        return _list(documents, listed, cursor)

    def versions(self, request: Request, documents: Documents) -> bytes:
        """Return the versions of a server.

        Raises:
            PackageNotFound: this hub has no such server.
        """
        return _list(documents, self._listing.versions(*_package(request, documents)), None)

    def version(self, request: Request, documents: Documents) -> bytes:
        """Return a version of a server.

        Raises:
            PackageNotFound: this hub has no such server or version.
        """
        listed = self._listing.version(*_package(request, documents), request.path_params["version"])
        return _encode(documents.server_response(listed))

    def _documents(self, request: Request) -> Documents:
        base = self._hub.base_url(request)
        return Documents(names_of(base), base, token=not self._hub.authenticator.is_open)


def _package(request: Request, documents: Documents) -> tuple[str, str]:
    where = request.path_params
    found = documents.names.package(where["namespace"], where["server"])
    if found is None:
        raise PackageNotFound(f"this hub has no server {where['namespace']}/{where['server']}"[:200])
    return found


def _list(documents: Documents, listed: list[Any], cursor: str | None) -> bytes:
    metadata: dict[str, Any] = {"count": len(listed)}
    if cursor is not None:
        metadata["nextCursor"] = cursor
    return _encode({"servers": [documents.server_response(one) for one in listed], "metadata": metadata})


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
