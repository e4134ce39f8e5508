"""The generated encyclopedia: a knowledge graph, the pages that state its facts, and an index to search them.

How this works. A *world* is named, such as `train-7`, and everything in it follows from that name:

* `schema` lists the kinds of entities and the relations between them, with the wording of each relation.
* `names` invents names. The hash of a name decides the split that it belongs to, so that no world of one split shares
  a name with a world of another one.
* `graph` draws entities and facts. It alone suffices to make questions, and takes a few milliseconds.
* `layout` decides which pages exist and which of them state a fact. It needs no text.
* `prose` and `pages` write the text of each page, and `index` makes it searchable.
* `library` keeps the worlds of this process, as many as fit its bound.

Nothing here knows about questions or rewards.
"""

from __future__ import annotations

from ludus.environments.search.world.graph import Entity, Graph, Term
from ludus.environments.search.world.layout import Layout
from ludus.environments.search.world.library import World, graph_of, layout_of, open_world
from ludus.environments.search.world.pages import Page
from ludus.environments.search.world.schema import KINDS, RELATIONS, Kind, Relation

__all__ = [
    "KINDS",
    "RELATIONS",
    "Entity",
    "Graph",
    "Kind",
    "Layout",
    "Page",
    "Relation",
    "Term",
    "World",
    "graph_of",
    "layout_of",
    "open_world",
]
