"""The state of a company in one episode."""

from __future__ import annotations

from ludus.environments._store import Change, Row
from ludus.environments._store import Store as RecordedStore
from ludus.environments.workplace.world.schema import PREFIXES, TABLES

__all__ = ["Change", "Row", "Store"]


class Store(RecordedStore):
    """The state of one episode.

    Args:
        image: the database of a company, which is copied.
    """

    def __init__(self, image: bytes) -> None:
        super().__init__(image, TABLES, PREFIXES)
