"""The filters of the catalog: tags, owners, and how episodes survive the death of their server."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Final, get_args

from sqlalchemy import func, select, tuple_

from ludus.hub.database.engine import Database
from ludus.hub.database.tables import Package, PackageTag, Version
from ludus.hub.registry.catalog import Registry
from ludus.protocol.registry import PAGE_SIZE, Durability, Manifest, PackageSummary

DURABILITIES: Final[tuple[str, ...]] = get_args(Durability)
"""The kinds of durability."""

COMMON_TAGS: Final = 16
"""The number of tags that the catalog offers."""

MOST_FILTERED: Final = 10_000
"""The most matches of a text and tags that are filtered by owner and durability."""

_AT_ONCE: Final = 400
"""The number of packages in one query."""


class Facets:
    """Searches with filters. All methods block, and any thread may call them.

    Args:
        registry: the registry.
        database: the hub's database.
    """

    def __init__(self, registry: Registry, database: Database) -> None:
        self._registry = registry
        self._database = database
        self._durabilities: dict[tuple[str, str], frozenset[str]] = {}
        """By id and version; a version never changes."""
        self._lock = threading.Lock()

    def tags(self) -> list[str]:
        """Return the most frequent tags."""
        query = select(PackageTag.tag).group_by(PackageTag.tag).order_by(func.count().desc(), PackageTag.tag)
        with self._database.reading() as session:
            return list(session.scalars(query.limit(COMMON_TAGS)))

    def search(
        self, text: str, tags: Sequence[str], owner: str, durability: str, page: int
    ) -> tuple[list[PackageSummary], int]:
        """Return one page of the packages that pass all filters, and the number of all of them.

        Args:
            text: words; each is a prefix.
            tags: tags that a package must have.
            owner: the owner; empty for all.
            durability: the durability that one of its environments must have; empty for all.
            page: the number of the page, from 1.
        """
        if not owner and not durability:
            return self._registry.search(text, tags, page)
        found, _ = self._registry.search(text, tags, 1, MOST_FILTERED)
        chosen = [one for one in found if not owner or one.id.partition("/")[0] == owner]
        if durability:
            known = self._known(chosen)
            chosen = [one for one in chosen if durability in known[one.id, one.version]]
        start = (page - 1) * PAGE_SIZE
        return chosen[start : start + PAGE_SIZE], len(chosen)

    def _known(self, packages: Iterable[PackageSummary]) -> dict[tuple[str, str], frozenset[str]]:
        """Return the durabilities of packages, and read those that were not asked for before."""
        with self._lock:
            wanted = {(one.id, one.version): frozenset[str]() for one in packages}
            missing = [key for key in wanted if key not in self._durabilities]
            for start in range(0, len(missing), _AT_ONCE):
                self._read(missing[start : start + _AT_ONCE])
            return {key: self._durabilities.get(key, empty) for key, empty in wanted.items()}

    def _read(self, keys: Sequence[tuple[str, str]]) -> None:
        parts = [(*id.split("/", 1), version) for id, version in keys]
        query = select(Version.manifest).join(Package, Package.id == Version.package_id)
        query = query.where(tuple_(Package.owner, Package.name, Version.version).in_(parts))
        with self._database.reading() as session:
            for text in session.scalars(query):
                manifest = Manifest.model_validate_json(text)
                kinds = frozenset(entry.durability for entry in manifest.environments if entry.durability is not None)
                self._durabilities[manifest.id, manifest.version] = frozenset(str(kind) for kind in kinds)
