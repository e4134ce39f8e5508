"""The catalog: search, filters and pages; and the page that says how to use the hub."""

from __future__ import annotations

from typing import Final, get_args
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.database.search import durability_tag, owner_tag
from ludus.hub.site.site import Site, short_text, whole_number
from ludus.protocol.errors import InvalidParams
from ludus.registry.types.packages import PAGE_SIZE, Durability

DURABILITIES: Final[tuple[str, ...]] = get_args(Durability)
"""The kinds of durability."""

COMMON_TAGS: Final = 16
"""The number of tags that the catalog offers."""

MOST_TAGS: Final = 10
"""The most tags of one search."""


class CatalogPages:
    """The pages of the catalog, and the page of documentation."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def catalog(self, request: Request) -> Response:
        """Return one page of the catalog."""
        text = short_text(request, "q")
        owner = short_text(request, "owner", 40)
        durability = short_text(request, "durability", 20)
        if durability and durability not in DURABILITIES:
            raise InvalidParams(f"'durability' in the address must be one of {', '.join(DURABILITIES)}")
        tags = list(dict.fromkeys(tag for tag in request.query_params.getlist("tag") if tag))
        if len(tags) > MOST_TAGS or any(len(tag) > 40 for tag in tags):
            raise InvalidParams(f"'tag' in the address may occur {MOST_TAGS} times, with 40 characters each")
        number = whole_number(request, "page", 1)
        filters = [*tags]
        if owner:
            filters.append(owner_tag(owner))
        if durability:
            filters.append(durability_tag(durability))
        catalog = self._site.catalog(request)
        packages, total = catalog.search(text, filters, number)
        common = catalog.tags(COMMON_TAGS)
        return self._site.page(
            request, "catalog.html", query=text, owner=owner, durability=durability, chosen=tags,
            tags=[*(tag for tag in tags if tag not in common), *common], durabilities=DURABILITIES, packages=packages,
            total=total, page=number, pages=max(1, -(-total // PAGE_SIZE)),
            link=lambda page: "/?" + urlencode(_query(text, owner, durability, tags, page)),
            tag_link=lambda tag: "/?" + urlencode({"tag": tag}),
        )  # fmt: skip

    def docs(self, request: Request) -> Response:
        """Return the page that says how to use this hub, with a package that the visitor sees as the example."""
        packages, _ = self._site.catalog(request).search("", [], 1)
        return self._site.page(
            request, "docs.html", hub_url=self._site.hub.base_url(request),
            example=packages[0].id if packages else "OWNER/NAME",
        )  # fmt: skip


def _query(text: str, owner: str, durability: str, tags: list[str], page: int) -> list[tuple[str, str]]:
    """Return the parameters of a search that are set."""
    fields = [("q", text), ("owner", owner), ("durability", durability), *(("tag", tag) for tag in tags)]
    return [(name, value) for name, value in fields if value] + ([("page", str(page))] if page > 1 else [])
