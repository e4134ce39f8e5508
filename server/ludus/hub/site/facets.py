"""The filters of the catalog: tags, owners, and how episodes survive the death of their server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from sqlalchemy import func, select

from ludus.hub.database.engine import Database
from ludus.hub.database.search import durability_tag, owner_tag
from ludus.hub.database.tables import PackageTag
from ludus.hub.registry.catalog import Registry
from ludus.protocol.registry import Durability, PackageSummary

DURABILITIES: Final[tuple[str, ...]] = get_args(Durability)
"""The kinds of durability."""

COMMON_TAGS: Final = 16
"""The number of tags that the catalog offers."""


class Facets:
    """Searches with filters. All methods block, and any thread may call them.

    Args:
        registry: the registry.
        database: the hub's database.
    """

    def __init__(self, registry: Registry, database: Database) -> None:
        self._registry = registry
        self._database = database

    def tags(self) -> list[str]:
        """Return the most frequent tags."""
        query = (
            select(PackageTag.tag)
            .where(~PackageTag.tag.contains(":"))
            .group_by(PackageTag.tag)
            .order_by(func.count().desc(), PackageTag.tag)
        )
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
        filters = [*tags]
        if owner:
            filters.append(owner_tag(owner))
        if durability:
            filters.append(durability_tag(durability))
        return self._registry.search(text, filters, page)
