"""The pages of one environment: a version, its card, and how other trainers train on it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.endpoints.hosts import host_address
from ludus.hub.registry.catalog import VersionRecord
from ludus.hub.results.store import ResultStore
from ludus.hub.site.board_pages import environment_results
from ludus.hub.site.code_pages import previous
from ludus.hub.site.markdown import card_html
from ludus.hub.site.recipes import place_of, recipes
from ludus.hub.site.rendering import HEADERS
from ludus.hub.site.site import Site, short_text
from ludus.hub.site.usage import LOCAL_SERVER, badge_code, snippets
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import NotFound
from ludus.registry.types.packages import EnvironmentEntry

SHOWN_VERSIONS: Final = 20
"""The most versions in the list of a page."""

SHOWN_ENVIRONMENTS: Final = 12
"""The most environments of a package that a page shows."""

TOOLS_BUDGET: Final = 9_000
"""The most characters of all tools of a page together."""

FINDINGS_BUDGET: Final = 4_000
"""The most characters of a validation report on a page."""


class EnvironmentPages:
    """The pages of an environment."""

    def __init__(self, site: Site, results: ResultStore) -> None:
        self._site = site
        self._results = results

    def environment(self, request: Request) -> Response:
        """Return the page of a version; of the latest one if the address names none."""
        owner, name = request.path_params["owner"], request.path_params["name"]
        catalog = self._site.catalog(request)
        viewer = self._site.visitors.visitor(request).viewer
        record = catalog.version(owner, name, request.path_params.get("version"))
        versions = catalog.versions(owner, name)
        latest = catalog.environment(owner, name).version
        hub_url = self._site.hub.base_url(request)
        runs = self._site.play_address(request, owner, name, record.version) is not None
        endpoint = f"{hub_url}/e/{record.id}@{record.version}" if runs else None
        card, is_cut = card_html(record.card)
        shown, hidden = _environments(record.environments)
        signature = record.signature
        return self._site.page(
            request, "environment.html", record=record, manifest=record.manifest, card=card, card_is_cut=is_cut,
            environments=shown, hidden_environments=hidden, versions=versions[:SHOWN_VERSIONS],
            more_versions=len(versions) - SHOWN_VERSIONS, latest=latest, previous=previous(versions, record.version),
            fingerprint=fingerprint(signature.key) if signature is not None else "", runs=runs,
            snippets=snippets(
                record, hub_url, self._site.hub.file_url(request, record.sha256, record.filename), endpoint,
                host_address(hub_url, self._site.hub.settings.endpoints.domain, owner, name, record.version) if runs
                else None,
            ),
            badge=badge_code(hub_url, record.id), reports=list(_reports(record)), owners=catalog.owners(owner, name),
            results=environment_results(self._results, record.id, record.version),
            of_organization=self._site.hub.people.organizations.exists(owner),
            may_change=self._site.hub.ownership.manages(viewer, owner),
        )  # fmt: skip

    def trainers(self, request: Request) -> Response:
        """Return complete configurations of other trainers for an environment of a version."""
        owner, name = request.path_params["owner"], request.path_params["name"]
        record = self._site.catalog(request).version(owner, name, request.path_params["version"])
        wanted = short_text(request, "environment", 100)
        entry = next(
            (environment for environment in record.environments if environment.name == wanted or not wanted), None
        )
        if entry is None:
            raise NotFound("this version has no such environment")
        runs = self._site.play_address(request, owner, name, record.version) is not None
        url = f"{self._site.hub.base_url(request)}/e/{record.id}@{record.version}" if runs else LOCAL_SERVER
        place = place_of(entry, url)
        return self._site.page(
            request, "trainers.html", record=record, place=place, recipes=recipes(place), runs=runs,
            source=entry.source, names=[environment.name for environment in record.environments[:100]],
        )  # fmt: skip

    def card(self, request: Request) -> Response:
        """Return a card as it was uploaded, as plain text."""
        parts = request.path_params
        record = self._site.catalog(request).version(parts["owner"], parts["name"], parts["version"])
        return Response(record.card, headers={**HEADERS}, media_type="text/plain; charset=utf-8")


def fingerprint(key: str) -> str:
    """Return a short form of a public key to compare by eye: the SHA-256 digest of its bytes, as OpenSSH writes it."""
    raw = base64.b64decode(key.partition(":")[2])
    return "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")


def _environments(entries: tuple[EnvironmentEntry, ...]) -> tuple[list[dict[str, Any]], int]:
    """Return the first environments with as many of their tools as a page has room for, and the number of others."""
    left, shown = TOOLS_BUDGET, []
    for entry in entries[:SHOWN_ENVIRONMENTS]:
        tools = []
        for tool in entry.tools:
            described = _tool(tool)
            left -= (
                sum(len(part) for row in described["arguments"] for part in row) + len(described["description"]) + 100
            )
            if left < 0:
                break
            tools.append(described)
        shown.append({
            "entry": entry, "tools": tools, "hidden_tools": len(entry.tools) - len(tools),
            "description": _short(entry.description, 600),
        })  # fmt: skip
    return shown, len(entries) - len(shown)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    properties = tool.input_schema.get("properties")
    required = tool.input_schema.get("required")
    required = required if isinstance(required, list) else []
    rows = []
    for name, schema in (properties if isinstance(properties, dict) else {}).items():
        facts = schema if isinstance(schema, dict) else {}
        kind = facts.get("type", "any")
        kind = kind if isinstance(kind, str) else json.dumps(kind)
        rows.append((
            _short(str(name), 80), _short(kind, 60), "required" if name in required else "optional",
            _short(str(facts.get("description", "")), 200),
        ))  # fmt: skip
    return {"name": _short(tool.name, 80), "description": _short(tool.description, 500), "arguments": rows}


def _reports(record: VersionRecord) -> Iterator[dict[str, Any]]:
    """Yield the reports of `ludus validate`. They come from the publisher: nothing about their form is assumed."""
    left = FINDINGS_BUDGET
    for report in record.validation.reports if record.validation is not None else ():
        checks = report.get("checks")
        rows = []
        for check in checks if isinstance(checks, list) else ():
            if not isinstance(check, dict):
                continue
            findings = check.get("findings")
            texts = [str(finding) for finding in findings] if isinstance(findings, list) else []
            row = [_short(str(check.get("kind", "")), 60), _short(str(check.get("status", "")), 20),
                   _short(" ".join(texts) or str(check.get("detail") or ""), 300)]  # fmt: skip
            left -= sum(map(len, row)) + 60
            if left < 0:
                break
            rows.append(row)
        yield {"environment": _short(str(report.get("environment", "")), 100), "passed": report.get("passed") is True,
               "checks": rows}  # fmt: skip
        if left < 0:
            return


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
