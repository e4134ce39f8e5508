"""The tools that read an encyclopedia: one finds pages, one opens them. Environments over one inherit them."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeVar

from pydantic import Field

from ludus.environments.search.world import World
from ludus.environments.search.world.index import query_words, snippet
from ludus.environments.search.world.pages import Page
from ludus.server import ProceduralEnvironment, Task, ToolError, tool

RESULTS: Final = 8
"""The results on one page of a search."""
SEARCH_PAGES: Final = 5
QUERY_LENGTH: Final = 300
PART_LENGTH: Final = 3_000
"""The most characters of a part of a page."""

TaskT = TypeVar("TaskT", bound=Task)


class Reader(ProceduralEnvironment[TaskT]):
    """An environment whose agent reads the pages of a world.

    Attributes:
        world: the world.
        opened: the numbers of the pages that the episode has opened.
        searches: how often it has searched.
    """

    world: World
    opened: set[int]
    searches: int

    def begin_reading(self, world: World) -> None:
        """Let the tools read a world; `setup` calls this."""
        self.world = world
        self.opened = set()
        self.searches = 0

    @tool(inline=True)
    def search(self, query: str, page: Annotated[int, Field(ge=1, le=SEARCH_PAGES)] = 1) -> str:
        """Find pages by words, the best match first. Shows the id and title of each, and a line from it.

        Args:
            query: names or other words to look for, at most 300 characters.
            page: which page of the results to show, 8 results each, at most 5 pages.
        """
        if len(query) > QUERY_LENGTH:
            raise ToolError(f"The query has {len(query)} characters. Use at most {QUERY_LENGTH}.")
        words = query_words(query)
        found = self.world.index.search(query)[: RESULTS * SEARCH_PAGES] if words else []
        if not found:
            raise ToolError("No page has any of these words. Search for a name from the question, or for other words.")
        last = -(-len(found) // RESULTS)
        if page > last:
            raise ToolError(f"This search has {last} {'page' if last == 1 else 'pages'} of results, so none at {page}.")
        self.searches += 1
        shown = found[RESULTS * (page - 1) : RESULTS * page]
        lines = [f"Results, page {page} of {last}:"]
        lines += [f"[{one.code}] {one.title}: {snippet(one, words)}" for one in shown]
        return "\n".join(lines)

    @tool(inline=True)
    def open(self, page: str, part: int = 1) -> str:
        """Read a page.

        Args:
            page: the id of the page from the search results, such as k7fq, or its exact title.
            part: which part of a long page to show, from 1.
        """
        found = self.find_page(page)
        parts = parts_of(found)
        if not 1 <= part <= len(parts):
            raise ToolError(f"This page has {len(parts)} {'part' if len(parts) == 1 else 'parts'}, so none at {part}.")
        self.opened.add(found.number)
        more = "" if len(parts) == 1 else f" (part {part} of {len(parts)})"
        return f"{found.title} [id: {found.code}]{more}\n{parts[part - 1]}"

    def find_page(self, page: str) -> Page:
        """Return the page with an id or a title, in brackets or not.

        Raises:
            ToolError: there is none.
        """
        wanted = page.strip().strip("\"'`").removeprefix("[[").removesuffix("]]").strip("[] ").partition("|")[0].lower()
        if marked := re.match(r"\[(\w{4})\]", page.strip()):
            wanted = marked[1].lower()
        number = self.world.by_name.get(wanted) if len(page) <= QUERY_LENGTH else None
        if number is None:
            shown = f" {wanted[:40]!r}" if wanted.isascii() and wanted.isprintable() else ""
            raise ToolError(f"There is no page{shown}. Use an id or an exact title that `search` shows.")
        return self.world.pages[number]


def parts_of(page: Page) -> list[str]:
    """Return the parts in which a page is shown, each of whole lines."""
    parts, lines, size = [], list[str](), 0
    for line in page.text.split("\n"):
        if lines and size + len(line) > PART_LENGTH:
            parts.append("\n".join(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    return [*parts, "\n".join(lines)]


def code_of(results: str, title: str) -> str:
    """Return the id of the page with a title from the results of a search.

    Raises:
        ValueError: the results do not have it.
    """
    for line in results.split("\n"):
        code, _, rest = line.partition("] ")
        if rest.startswith(f"{title}: "):
            return code.removeprefix("[")
    raise ValueError(f"no result has the title {title!r}")
