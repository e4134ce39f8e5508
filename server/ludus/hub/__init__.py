"""The hub: a registry of environment packages, and a package index that pip, uv and twine use unchanged.

    core/            files by their SHA-256 digest, in a folder or a bucket; rates; the hub's key; other processes
    database/        the tables, their migrations, connections
    settings/        the settings of each part, and the operator's file of them
    access/          who asks, what names are allowed, and who sees or changes what
    people/          accounts, organizations, tokens, sessions, OpenID, the audit log
    registry/        wheels, publishing, the catalog of packages
    blocking/        wheels that an administrator has blocked
    parts/           the stores that all of the following share
    endpoints/       published environments that run at /e/OWNER/NAME
    api/             the JSON API under /api/v1; index/ is the simple repository API and the legacy upload API
    discovery/       what MCP clients find: AI catalog, server cards, the registry's API
    results/         reported and played runs, boards, receipts
    site/            the pages
    operation/       backup, restore, check
    app.py           builds all parts, in order; metrics.py observes them, seed.py publishes the built-in library
    serve.py         runs the application; commands/ is `ludus hub`

Needs the extra `hub`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ludus.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from ludus.hub.app import create_hub
    from ludus.hub.parts.hub import Hub
    from ludus.hub.registry.catalog import PackageCatalog, VersionRecord
    from ludus.hub.settings.hub import HubLimits, HubSettings

__all__ = ["Hub", "HubLimits", "HubSettings", "PackageCatalog", "VersionRecord", "create_hub"]

_MODULES: Final = {
    "ludus.hub.app": "create_hub",
    "ludus.hub.parts.hub": "Hub",
    "ludus.hub.registry.catalog": "PackageCatalog VersionRecord",
    "ludus.hub.settings.hub": "HubLimits HubSettings",
}
"""The modules that define the public names, which are imported at first use."""

__getattr__ = lazy_names(globals(), _MODULES)
