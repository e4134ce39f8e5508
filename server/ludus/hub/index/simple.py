"""The simple repository API, for all packages and for those of one owner.

    /index/simple/                     all projects
    /index/simple/{project}/           the files of one
    /index/{owner}/simple/…            the same for one owner
    /files/{sha256}/{filename}         a wheel; with `.metadata` behind, its METADATA

Answers are HTML (PEP 503) or JSON (PEP 691, with the fields of PEP 700), as the `Accept` header asks.
"""

from __future__ import annotations

from html import escape
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from fastapi.routing import APIRoute
from packaging.utils import canonicalize_name

from ludus.hub.core.downloads import PRIVATE, SHARED, BlobResponse, etag_of
from ludus.hub.database.tables import Version
from ludus.hub.database.times import aware
from ludus.hub.parts.hub import Hub

JSON_TYPE: Final = "application/vnd.pypi.simple.v1+json"
HTML_TYPE: Final = "application/vnd.pypi.simple.v1+html"
"""The media types of PEP 691."""

API_VERSION: Final = "1.1"
"""The version of the API in PEP 700."""

QUARANTINED: Final = {"status": "quarantined", "reason": "all versions are blocked by an administrator of this hub"}
"""The status of a project all of whose versions are blocked (PEP 792)."""


def router(hub: Hub) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["Package index"])

    @routes.get("/index/simple/", summary="List all projects")
    def projects(request: Request) -> Response:
        return _projects(request, hub.catalog(request).projects())

    @routes.get("/index/{owner}/simple/", summary="List an owner's projects")
    def owners_projects(request: Request, owner: str) -> Response:
        return _projects(request, hub.catalog(request).projects(owner))

    @routes.get("/index/simple/{project}/", summary="List the files of a project")
    def project(request: Request, project: str) -> Response:
        return _project(request, hub, project, None)

    @routes.get("/index/{owner}/simple/{project}/", summary="List the files of an owner's project")
    def owners_project(request: Request, owner: str, project: str) -> Response:
        return _project(request, hub, project, owner)

    @routes.get(
        "/files/{sha256}/{filename}",
        summary="Download a wheel, or its METADATA",
        response_class=FileResponse,  # FastAPI reads the status of its description from the signature
    )
    def file(request: Request, sha256: str, filename: str) -> Response:
        wheel = filename.removesuffix(".metadata")
        row, private = hub.catalog(request).file(sha256, wheel)
        digest = row.metadata_sha256 if wheel != filename else row.sha256
        kind = "text/plain; charset=utf-8" if wheel != filename else "application/octet-stream"
        headers = PRIVATE if private else SHARED
        if etag_of(digest) in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers={**headers, "etag": etag_of(digest)})
        return BlobResponse(hub.blobs, digest, kind, headers)

    for route in [route for route in routes.routes if isinstance(route, APIRoute)]:
        routes.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)
    return routes


def _projects(request: Request, names: list[str]) -> Response:
    if _wants_json(request):
        return _json({"meta": {"api-version": API_VERSION}, "projects": [{"name": name} for name in names]})
    links = "\n".join(f'<a href="{name}/">{name}</a><br>' for name in names)
    return _html("Simple index", links)


def _project(request: Request, hub: Hub, project: str, owner: str | None) -> Response:
    normal = canonicalize_name(project)
    if project != normal:
        return RedirectResponse(f"../{normal}/", status_code=301)
    rows = hub.catalog(request).files(normal, owner)
    if _wants_json(request):
        status = {} if rows else {"project-status": QUARANTINED}
        return _json(
            {
                "meta": {"api-version": API_VERSION, **status},
                "name": normal,
                "versions": [row.version for row in rows],
                "files": [_json_file(request, hub, row) for row in rows],
            }
        )
    return _html(f"Links for {normal}", "\n".join(_link(request, hub, row) for row in rows))


def _json_file(request: Request, hub: Hub, row: Version) -> dict[str, Any]:
    metadata = {"sha256": row.metadata_sha256}
    return {
        "filename": row.filename,
        "url": hub.file_url(request, row.sha256, row.filename),
        "hashes": {"sha256": row.sha256},
        "requires-python": row.requires_python,
        "size": row.size,
        "upload-time": aware(row.uploaded_at).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "yanked": row.yanked if row.yanked is not None else False,
        "core-metadata": metadata,
        "data-dist-info-metadata": metadata,
    }


def _link(request: Request, hub: Hub, row: Version) -> str:
    attributes = {"data-core-metadata": f"sha256={row.metadata_sha256}"}
    attributes["data-dist-info-metadata"] = attributes["data-core-metadata"]
    if row.requires_python:
        attributes["data-requires-python"] = row.requires_python
    if row.yanked is not None:
        attributes["data-yanked"] = row.yanked
    address = f"{hub.file_url(request, row.sha256, row.filename)}#sha256={row.sha256}"
    more = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
    return f'<a href="{escape(address)}"{more}>{escape(row.filename)}</a><br>'


def _wants_json(request: Request) -> bool:
    """Return whether the request prefers JSON. pip and uv prefer it; browsers get HTML."""
    best, chosen = 0.0, False
    for part in request.headers.get("accept", "").split(","):
        kind, _, options = part.strip().partition(";")
        try:
            weight = float(options.partition("q=")[2] or 1.0)
        except ValueError:
            weight = 0.0
        if kind in (JSON_TYPE, HTML_TYPE, "text/html") and weight > best:
            best, chosen = weight, kind == JSON_TYPE
    return chosen


def _json(value: dict[str, Any]) -> Response:
    return JSONResponse(value, media_type=JSON_TYPE, headers={"vary": "accept"})


def _html(title: str, links: str) -> Response:
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="pypi:repository-version" content="{API_VERSION}"><title>{escape(title)}</title></head>\n'
        f"<body>\n{links}\n</body></html>\n"
    )
    # Nothing in it runs, and its links to wheels work.
    headers = {"vary": "accept", "content-security-policy": "default-src 'none'; sandbox allow-downloads"}
    return Response(page, media_type="text/html; charset=utf-8", headers=headers)
