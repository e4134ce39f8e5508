"""Head-to-head matches of a hub for clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pydantic import ValidationError

from ludus.registry.client import RegistryClient
from ludus.registry.results import START_SECONDS, invalid_file, read_receipt_file, version_path
from ludus.registry.types.match_receipts import KIND, EntrantReceipt
from ludus.registry.types.matches import (
    LONGEST_WAIT,
    EntrantInfo,
    EntrantParams,
    MatchBoard,
    MatchBoardKey,
    MatchEnd,
    MatchInfo,
    MatchList,
    NextMatch,
    NextMatchParams,
    OpenMatches,
)
from ludus.registry.types.strict_json import read_strict

WAIT_SECONDS: Final = 20.0
"""How long one request waits for an opponent by default."""


class MatchesClient(RegistryClient):
    """A connection to a hub, with its matches; see `RegistryClient`."""

    async def register(self, package: str, version: str, params: EntrantParams) -> EntrantInfo:
        """Register an entrant for matches, or a registered one for more of them.

        Raises:
            CapacityError: the account or the board has too many entrants.
            Conflict: the entrant was removed, or was registered with other options.
            Unsupported: the environment does not have two seats.
        """
        where = f"{version_path(package, version)}/entrants"
        data = params.model_dump_json(by_alias=True)
        return await self._call("POST", where, EntrantInfo, seconds=START_SECONDS, data=data)

    async def entrant(self, entrant: str) -> EntrantInfo:
        """Return an entrant."""
        return await self._call("GET", _entrant(entrant), EntrantInfo)

    async def next_match(self, entrant: str, wait_seconds: float = WAIT_SECONDS) -> NextMatch:
        """Wait for an opponent, and let the hub start the match.

        Args:
            entrant: the entrant.
            wait_seconds: how long to wait, at most 30.

        Raises:
            CapacityError: too many matches of the entrant are open or waited for.
        """
        params = NextMatchParams(wait_seconds=min(wait_seconds, LONGEST_WAIT)).model_dump_json(by_alias=True)
        return await self._call("POST", f"{_entrant(entrant)}/next", NextMatch, seconds=START_SECONDS, data=params)

    async def open_matches(self, entrant: str) -> OpenMatches:
        """Return the open matches of an entrant."""
        return await self._call("GET", f"{_entrant(entrant)}/open", OpenMatches)

    async def end_match(self, entrant: str, match: str) -> MatchEnd:
        """Say that a match is done. An entrant whose episode still runs has then left the match, and loses it."""
        where = f"{_entrant(entrant)}/matches/{quote(match, safe='')}/end"
        return await self._call("POST", where, MatchEnd, seconds=START_SECONDS)

    async def withdraw(self, entrant: str) -> EntrantInfo:
        """End an entrant, which loses its open matches."""
        return await self._call("POST", f"{_entrant(entrant)}/withdraw", EntrantInfo, seconds=START_SECONDS)

    async def remove_entrant(self, entrant: str, reason: str) -> EntrantInfo:
        """Take an entrant off its board."""
        return await self._call("POST", f"{_entrant(entrant)}/remove", EntrantInfo, json={"reason": reason})

    async def matches(self, entrant: str, page: int = 1) -> MatchList:
        """Return one page of the ended matches of an entrant, the newest one first."""
        return await self._call("GET", f"{_entrant(entrant)}/matches", MatchList, params=[("page", str(page))])

    async def match(self, match: str) -> MatchInfo:
        """Return a match."""
        return await self._call("GET", f"/matches/{quote(match, safe='')}", MatchInfo)

    async def entrant_receipt(self, entrant: str) -> EntrantReceipt:
        """Return the signed receipt of an entrant."""
        return await self._call("GET", f"{_entrant(entrant)}/receipt", EntrantReceipt)

    async def match_board(self, key: MatchBoardKey, page: int = 1) -> MatchBoard:
        """Return one page of a board of matches."""
        query = [("environment", key.environment), ("split", key.split), ("page", str(page))]
        where = f"{version_path(key.package, key.version)}/match-board"
        return await self._call("GET", where, MatchBoard, params=query)


def read_entrant_receipt(path: Path) -> EntrantReceipt | None:
    """Read a receipt file; None if it is about something else than an entrant.

    Raises:
        NotFound: it cannot be read.
        ParseError: it is no whole receipt, or readers read it in different ways; the message names the field.
    """
    data = read_receipt_file(path)
    whole: Any = read_strict(data, f"the receipt {path}")
    statement = whole.get("statement") if isinstance(whole, dict) else None
    if not isinstance(statement, dict) or statement.get("kind") != KIND:
        return None
    try:
        return EntrantReceipt.model_validate_json(data)
    except ValidationError as error:
        raise invalid_file(path, "a receipt", error) from None


def _entrant(entrant: str) -> str:
    return f"/entrants/{quote(entrant, safe='')}"
