"""The hub: a registry of environment packages, and a package index that pip, uv and twine use unchanged.

    settings.py      where the hub listens, where its data lies, its limits; settings_file.py is the operator's
                     file of them, toml_settings.py reads such files
    database/        the tables, their migrations, connections
    blobs.py         files by their SHA-256 digest; object_store.py keeps them in a bucket, downloads.py
                     answers with them, uploads.py receives them
    registry/        names, wheels, publishing, the catalog, and who sees what in it
    people/          accounts, organizations, tokens, sessions, OpenID, rates, the audit log
    index/           the simple repository API and the legacy upload API
    api.py           the JSON API under /api/v1
    discovery/       what MCP clients find: AI catalog, server cards, the registry's API
    endpoints/       published environments that run at /e/OWNER/NAME
    results/         reported and played runs, boards, receipts
    site/            the pages; rollout_index.py: where the episodes of a file of trajectories begin
    seed.py          the built-in library, which a new hub has
    operation/       backup, restore, check; metrics.py and request_times.py
    app.py           the application; serve.py runs it, command.py is `ludus hub`, options.py its shared options

Needs the extra `hub`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ludus.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from ludus.hub.app import create_hub
    from ludus.hub.hub import Hub
    from ludus.hub.registry.catalog import Registry, VersionRecord
    from ludus.hub.settings import HubLimits, HubSettings

__all__ = ["Hub", "HubLimits", "HubSettings", "Registry", "VersionRecord", "create_hub"]

_MODULES: Final = {
    "ludus.hub.app": "create_hub",
    "ludus.hub.hub": "Hub",
    "ludus.hub.registry.catalog": "Registry VersionRecord",
    "ludus.hub.settings": "HubLimits HubSettings",
}
"""The modules that define the public names, which are imported at first use."""

__getattr__ = lazy_names(globals(), _MODULES)
