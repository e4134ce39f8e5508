"""The hub: a registry of environment packages, and a package index that pip, uv and twine use unchanged.

settings.py      where the hub listens, where its data lies, its limits
database/        the tables, their migrations, connections
blobs.py         files by their SHA-256 digest
registry/        names, wheels, publishing, the catalog
index/           the simple repository API and the legacy upload API
api.py           the JSON API under /api/v1
endpoints/       published environments that run at /e/OWNER/NAME
app.py           the application; serve.py runs it, command.py is `ludus hub`
"""

from __future__ import annotations

__all__: list[str] = []
