"""The filters of the catalog: tags, owners, and how episodes survive the death of their server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from ludus.hub.database.search import durability_tag, owner_tag
from ludus.hub.registry.catalog import PackageCatalog
from ludus.registry.types.packages import Durability, PackageSummary

DURABILITIES: Final[tuple[str, ...]] = get_args(Durability)
"""The kinds of durability."""

COMMON_TAGS: Final = 16
"""The number of tags that the catalog offers."""


class Facets:
    """Searches with filters. All methods block, and any thread may call them.

    Args:
        catalog: the packages as the viewer sees it.
    """

    def __init__(self, catalog: PackageCatalog) -> None:
        self._catalog = catalog

    def tags(self) -> list[str]:
        """Return the most frequent tags."""
        return self._catalog.tags(COMMON_TAGS)

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
        return self._catalog.search(text, filters, page)
