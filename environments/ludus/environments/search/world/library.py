"""Keep the worlds of this process: each is made at first use, once, and the least recently used ones are dropped.

Graphs and layouts suffice to list tasks; pages and their index are made when an episode starts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ludus.environments.search.world.graph import Graph, draw_graph
from ludus.environments.search.world.index import Index
from ludus.environments.search.world.layout import Layout
from ludus.environments.search.world.pages import Page, write_pages
from ludus.server import TaskDraw, fresh_tests
from ludus.server.authoring.partition import SPLITS, SplitType

GRAPHS: Final = 32
"""The graphs that a process keeps."""

WORLDS: Final = 24
"""The worlds with pages and an index that a process keeps."""

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class World:
    """A world that can be read.

    Attributes:
        graph: its entities and facts.
        layout: which pages it has.
        pages: the pages, by number.
        index: finds them by words.
        by_name: the number of a page by its code, and by its title in lower case.
        names: the names that an entity's page gives, by its name, for entities that have several.
    """

    graph: Graph
    layout: Layout
    pages: Sequence[Page]
    index: Index
    by_name: dict[str, int]
    names: dict[str, tuple[str, ...]]


class Shelf(Generic[ValueT]):
    """Keeps values that are expensive to make, the least recently used ones dropped first.

    Two threads that need the same value wait for one to make it.

    Args:
        limit: the number of values that are kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, ValueT] = OrderedDict()
        self._making: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def find(self, name: str) -> ValueT | None:
        """Return a value that is kept; None if it would have to be made."""
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
            return found

    def get(self, name: str, make: Callable[[], ValueT]) -> ValueT:
        """Return a value, which is made if it is not kept."""
        found = self.find(name)
        if found is not None:
            return found
        with self._lock:
            own = self._making.setdefault(name, threading.Lock())
        with own:
            found = self.find(name)
            if found is not None:
                return found
            try:
                found = make()
                with self._lock:
                    self._kept[name] = found
                    while len(self._kept) > self._limit:
                        self._kept.popitem(last=False)
            finally:
                with self._lock:
                    self._making.pop(name, None)
        return found


_graphs: Final = Shelf[tuple[Graph, Layout]](GRAPHS)
_worlds: Final = Shelf[World](WORLDS)


def graph_of(name: str) -> Graph:
    """Return the graph of a world.

    Raises:
        ValueError: the name is not one of a world, or of a test world drawn from another secret.
    """
    return _graphs.get(name, lambda: _drawn(name))[0]


def layout_of(name: str) -> Layout:
    """Return the layout of a world.

    Raises:
        ValueError: as `graph_of` does.
    """
    return _graphs.get(name, lambda: _drawn(name))[1]


def open_world(name: str) -> World:
    """Return a world with its pages, which takes some hundred milliseconds at first use.

    Raises:
        ValueError: as `graph_of` does.
    """
    return _worlds.get(name, lambda: _opened(name))


def kept_world(name: str) -> World | None:
    """Return a world if its pages are ready."""
    return _worlds.find(name)


def _drawn(name: str) -> tuple[Graph, Layout]:
    split: SplitType | None = next((one for one in SPLITS if name.startswith(f"{one}-")), None)
    draw: TaskDraw[str] | None = TaskDraw(split, (), fresh_tests(split)) if split else None
    number = name.removeprefix(f"{draw.prefix}-") if draw else ""
    if draw is None or not (number.isascii() and number.isdigit()):
        raise ValueError(f"there is no world {name!r}: its name is not of this process's splits or test secret")
    graph = draw_graph(name, draw.split, draw.secret)
    return graph, Layout(graph)


def _opened(name: str) -> World:
    graph, layout = graph_of(name), layout_of(name)
    pages = write_pages(graph, layout)
    by_name = {page.title.lower(): page.number for page in pages} | {page.code: page.number for page in pages}
    names: dict[str, tuple[str, ...]] = {
        entity.name: (entity.name, *entity.aliases) for entity in graph.entities if entity.aliases
    }
    return World(graph, layout, pages, Index(pages), by_name, names)
