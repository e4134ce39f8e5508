"""The documents of MCP discovery, as plain JSON values.

`server_json`       https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json
`server_response`   an item of the registry API v0.1
`server_card`       the server card extension (SEP-2127)
`catalog_entry`     an entry of an AI catalog 1.0

There is no `packages[]`: what a hub publishes is a library of environments, which `ludus serve` runs, and not a program
that a client could start by the package's name.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from ludus.hub.discovery.listing import CatalogRow, ListedVersion
from ludus.hub.discovery.names import HubNames
from ludus.hub.discovery.paths import CARD
from ludus.protocol.identifiers import EXTENSION_ID

SERVER_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
CARD_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
CARD_TYPE: Final = "application/mcp-server-card+json"
CATALOG_TYPE: Final = "application/ai-catalog+json"
OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
PUBLISHER: Final = "io.modelcontextprotocol.registry/publisher-provided"
OURS: Final = "dev.ludus/environment"
"""The key of what Ludus adds to a server: see `_facts`."""

FACTS_BYTES: Final = 4_096
"""The most bytes that the registry keeps of what a publisher adds."""

DESCRIPTION: Final = "A reinforcement-learning environment for agents."
"""The description of a package without one, because the formats demand one."""

_FORGES: Final = {"github.com": "github", "gitlab.com": "gitlab"}


class Documents:
    """Makes the documents of one hub for one address.

    Args:
        names: the names of its environments.
        base_url: the hub's address, without a slash at its end.
        token: whether an endpoint needs a token.
    """

    def __init__(self, names: HubNames, base_url: str, *, token: bool) -> None:
        self.names = names
        self._base = base_url
        self._token = token

    def server_json(self, listed: ListedVersion) -> dict[str, Any]:
        """Return `server.json` of a version. Its remote is pinned to exactly this version."""
        facts = {PUBLISHER: {OURS: _facts(listed)}}
        address = f"{self._base}/e/{listed.id}@{listed.version}/mcp"
        return {"$schema": SERVER_SCHEMA, **self._server(listed, address), "_meta": facts}

    def server_response(self, listed: ListedVersion) -> dict[str, Any]:
        """Return a version as the registry API lists it. A yanked one is deprecated, and a blocked one deleted."""
        status, reason = "active", listed.yanked
        if listed.blocked is not None:
            status, reason = "deleted", listed.blocked
        elif reason is not None:
            status = "deprecated"
        official = {
            "status": status,
            **({"statusMessage": reason} if reason is not None else {}),
            "publishedAt": _time(listed.published_at),
            "updatedAt": _time(listed.changed_at),
            "statusChangedAt": _time(listed.published_at if reason is None else listed.changed_at),
            "isLatest": listed.latest,
        }
        return {"server": self.server_json(listed), "_meta": {OFFICIAL: official}}

    def server_card(self, listed: ListedVersion, *, pinned: bool) -> dict[str, Any]:
        """Return the card of an endpoint.

        Args:
            listed: the version that it runs.
            pinned: whether its address names the version, rather than meaning the newest one.
        """
        where = f"{listed.id}@{listed.version}" if pinned else listed.id
        server = self._server(listed, f"{self._base}/e/{where}/mcp")
        return {"$schema": CARD_SCHEMA, **server, "_meta": {OURS: _facts(listed)}}

    def catalog_entry(self, row: CatalogRow) -> dict[str, Any]:
        """Return the entry of a package in the AI catalog."""
        return {
            "identifier": self.names.urn(row.id),
            "displayName": row.id,
            "type": CARD_TYPE,
            "url": f"{self._base}/e/{row.id}{CARD}",
            "version": row.version,
            "updatedAt": _time(row.updated_at),
        }

    def _server(self, listed: ListedVersion, address: str) -> dict[str, Any]:
        manifest = listed.manifest
        remote: dict[str, Any] = {"type": "streamable-http", "url": address}
        if self._token:
            remote["headers"] = [_AUTHORIZATION]
        found: dict[str, Any] = {
            "name": self.names.server(listed.id),
            "title": listed.id,
            "description": manifest.description.strip() or DESCRIPTION,
            "version": listed.version,
            "websiteUrl": f"{self._base}/{listed.id}",
            "remotes": [remote],
        }
        if (repository := _repository(manifest.provenance.repository)) is not None:
            found["repository"] = repository
        return found


_AUTHORIZATION: Final = {
    "name": "Authorization",
    "description": "A token of this hub.",
    "isRequired": True,
    "isSecret": True,
    "value": "Bearer {token}",
    "variables": {"token": {"description": "A token of this hub.", "isRequired": True, "isSecret": True}},
}


def _facts(listed: ListedVersion) -> dict[str, Any]:
    """Return what only clients of Ludus understand: the extension, and the splits, as far as they fit."""
    manifest = listed.manifest
    found: dict[str, Any] = {"extension": EXTENSION_ID, "id": listed.id}
    more = {
        "license": manifest.license,
        "tags": list(manifest.tags),
        "environments": {
            entry.name: {split.name: split.count for split in entry.splits} for entry in manifest.environments
        },
    }
    for key, value in more.items():
        if value and len(json.dumps({OURS: {**found, key: value}})) <= FACTS_BYTES:
            found[key] = value
    return found


def _repository(address: str | None) -> dict[str, str] | None:
    if address is None:
        return None
    host = (urlsplit(address).hostname or "").lower()
    return {"url": address, "source": _FORGES.get(host, host)} if host else None


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
