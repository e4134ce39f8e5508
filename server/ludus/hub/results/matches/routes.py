"""The JSON API of matches, below `/api/v1`. Requests that change something need a token with the scope `results`.

    POST /environments/{owner}/{name}/versions/{version}/entrants      EntrantParams → EntrantInfo
    GET  /environments/{owner}/{name}/versions/{version}/match-boards  MatchBoardList
    GET  /environments/{owner}/{name}/versions/{version}/match-board?environment=&split=&page=   MatchBoard
    GET  /entrants/{entrant}                              EntrantInfo
    GET  /entrants/{entrant}/matches?page=                MatchList: its ended matches
    GET  /entrants/{entrant}/receipt                      EntrantReceipt, with all rows
    POST /entrants/{entrant}/next                         NextMatchParams → NextMatch: waits for an opponent
    GET  /entrants/{entrant}/open                         OpenMatches
    POST /entrants/{entrant}/matches/{match}/end          MatchEnd
    POST /entrants/{entrant}/withdraw                     EntrantInfo
    POST /entrants/{entrant}/remove                       RemoveParams → EntrantInfo
    GET  /matches/{match}                                 MatchInfo
    GET  /results/removed-entrants?page=                  MatchLog

Nothing about an open match is shown to anyone, except its own ticket to each player.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from ludus.hub.hub import Hub
from ludus.hub.people.viewers import Viewer
from ludus.hub.results.access import Access, PlayAddress
from ludus.hub.results.matches import reading
from ludus.hub.results.matches.playing import Matches
from ludus.hub.results.matches.receipts import Signer
from ludus.hub.results.matches.store import MatchStore, no_entrant, no_match
from ludus.hub.results.routes import VERSION, body_of
from ludus.protocol.errors import NotFound, Unsupported
from ludus.registry.types.matches import (
    EntrantInfo,
    EntrantParams,
    MatchBoardKey,
    MatchBoardList,
    MatchEnd,
    MatchInfo,
    MatchList,
    MatchLog,
    NextMatch,
    NextMatchParams,
    OpenMatches,
    board_key,
)
from ludus.registry.types.people import HubScope
from ludus.registry.types.results import RemoveParams

Page = Annotated[int, Query(ge=1, le=100_000)]


class MatchAccess(Access):
    """Reads entrants and matches for requests; those on private packages are absent for strangers."""

    def check_entrant(self, request: Request, entrant: EntrantInfo) -> EntrantInfo:
        """Return an entrant if the sender of a request may see its package.

        Raises:
            NotFound: it is private; the error is that of an entrant that does not exist.
        """
        if not self.sees(request, entrant.package, entrant.version):
            raise no_entrant(entrant.key)
        return entrant

    def check_match(self, request: Request, match: MatchInfo) -> MatchInfo:
        """Return a match if the sender of a request may see its package; see `check_entrant`."""
        if not self.sees(request, match.package, match.version):
            raise no_match(match.key)
        return match

    def check_player(self, request: Request, viewer: Viewer, entrant: EntrantInfo) -> None:
        """Check that the sender of a request sees an entrant's package, and that its token covers the package.

        Raises:
            NotFound: the package is private.
            Forbidden: the token is limited to other packages.
        """
        self.check_entrant(request, entrant)
        viewer.require(HubScope.RESULTS, entrant.package)


class MatchRoutes:
    """The routes.

    Args:
        hub: the hub.
        store: the entrants and matches in the database.
        matches: the matches as they are played.
        signer: signs receipts.
        play_address: where versions run.
    """

    def __init__(
        self, hub: Hub, store: MatchStore, matches: Matches, signer: Signer, play_address: PlayAddress
    ) -> None:
        self._hub = hub
        self._access = MatchAccess(hub)
        self._store = store
        self._matches = matches
        self._signer = signer
        self._play_address = play_address

    def router(self) -> APIRouter:
        """Return all routes."""
        routes = APIRouter(prefix="/api/v1")
        self._add_boards(routes)
        self._add_reading(routes)
        self._add_playing(routes)
        self._add_ending(routes)
        return routes

    def _add_boards(self, routes: APIRouter) -> None:
        access, database = self._access, self._store.database

        @routes.get(f"{VERSION}/match-boards", tags=["Matches"], summary="List the boards of matches of a version")
        def boards(request: Request, owner: str, name: str, version: str) -> MatchBoardList:
            record = access.version(request, owner, name, version)
            keys = tuple(map(board_key, reading.read_boards(database, record.id, record.version)))
            return MatchBoardList(id=record.id, version=record.version, boards=keys)

        @routes.get(f"{VERSION}/match-board", tags=["Matches"], summary="Show a board", response_class=Response)
        def board(
            request: Request, owner: str, name: str, version: str,
            environment: Annotated[str, Query(max_length=300)], split: Annotated[str, Query(max_length=300)],
            page: Page = 1,
        ) -> Response:  # fmt: skip
            record = access.version(request, owner, name, version)
            key = MatchBoardKey(package=record.id, version=record.version, environment=environment, split=split)
            found = reading.read_board(database, key, page)
            if found is None:
                raise NotFound(f"{record.id} {record.version} has no matches of {environment} / {split} yet")
            return Response(found.model_dump_json(by_alias=True), media_type="application/json")

    def _add_reading(self, routes: APIRouter) -> None:
        access, database = self._access, self._store.database

        @routes.get("/entrants/{entrant}", tags=["Matches"], summary="Show an entrant")
        def show(request: Request, entrant: str) -> EntrantInfo:
            return access.check_entrant(request, reading.read_entrant(database, entrant))

        @routes.get("/entrants/{entrant}/matches", tags=["Matches"], summary="List the ended matches of an entrant")
        def matches(request: Request, entrant: str, page: Page = 1) -> MatchList:
            access.check_entrant(request, reading.read_entrant(database, entrant))
            return reading.read_matches(database, entrant, page)

        @routes.get("/entrants/{entrant}/receipt", tags=["Matches"], summary="Get the signed receipt of an entrant")
        def receipt(request: Request, entrant: str) -> Response:
            info = access.check_entrant(request, reading.read_entrant(database, entrant))
            found = self._signer.receipt(info, reading.read_all_matches(database, entrant), self._matches.now())
            return Response(found.model_dump_json(by_alias=True), media_type="application/json")

        @routes.get("/matches/{match}", tags=["Matches"], summary="Show a match")
        def show_match(request: Request, match: str) -> MatchInfo:
            return access.check_match(request, reading.read_match(database, match))

        @routes.get("/results/removed-entrants", tags=["Matches"], summary="List removals of entrants")
        def log(request: Request, page: Page = 1) -> MatchLog:
            return reading.read_log(database, page, access.hidden(request))

    def _add_playing(self, routes: APIRouter) -> None:
        access, matches = self._access, self._matches

        @routes.post(f"{VERSION}/entrants", tags=["Matches"], summary="Register for matches", status_code=201)
        async def register(request: Request, owner: str, name: str, version: str) -> EntrantInfo:
            principal = await run_in_threadpool(access.submitter, request, f"{owner}/{name}")
            params = await body_of(request, EntrantParams)
            record = await run_in_threadpool(access.version, request, owner, name, version)
            publisher = await run_in_threadpool(access.is_publisher, principal, record)
            address, _ = self._place(request, record.id, record.version)
            self._hub.counts["results:entrants"] += 1
            return await matches.register(principal, record, params, address, by_publisher=publisher)

        @routes.post("/entrants/{entrant}/next", tags=["Matches"], summary="Wait for an opponent, and start the match")
        async def begin(request: Request, entrant: str) -> NextMatch:
            principal, info = await self._player(request, entrant)
            await run_in_threadpool(access.check_offered, request, info)
            await run_in_threadpool(self._store.check_here, entrant, take=True)
            params = await body_of(request, NextMatchParams)
            where = self._place(request, info.package, info.version)
            return await matches.next_match(principal, entrant, params.wait_seconds, *where)

        @routes.get("/entrants/{entrant}/open", tags=["Matches"], summary="List the open matches of an entrant")
        async def tickets(request: Request, entrant: str) -> OpenMatches:
            principal, info = await self._player(request, entrant)
            await run_in_threadpool(self._store.check_here, entrant)
            return await matches.tickets(principal, entrant, self._place(request, info.package, info.version)[1])

    def _add_ending(self, routes: APIRouter) -> None:
        access, matches = self._access, self._matches

        @routes.post(
            "/entrants/{entrant}/matches/{match}/end", tags=["Matches"],
            summary="Say that a match is done; an entrant that leaves it before its end loses it",
        )  # fmt: skip
        async def end(request: Request, entrant: str, match: str) -> MatchEnd:
            principal, _ = await self._player(request, entrant)
            await run_in_threadpool(self._store.check_here, entrant)
            return await matches.end_match(principal, entrant, match)

        @routes.post("/entrants/{entrant}/withdraw", tags=["Matches"], summary="Stop; open matches are lost")
        async def withdraw(request: Request, entrant: str) -> EntrantInfo:
            principal, _ = await self._player(request, entrant)
            await run_in_threadpool(self._store.check_here, entrant)
            return await matches.withdraw(principal, entrant)

        @routes.post("/entrants/{entrant}/remove", tags=["Matches"], summary="Take an entrant off its board")
        async def remove(request: Request, entrant: str) -> EntrantInfo:
            principal, _ = await self._player(request, entrant)
            sent = await body_of(request, RemoveParams)
            is_moderator = access.is_moderator(principal)
            await matches.remove(principal, entrant, sent.reason, is_moderator=is_moderator)
            return await run_in_threadpool(reading.read_entrant, self._store.database, entrant)

    async def _player(self, request: Request, entrant: str) -> tuple[Viewer, EntrantInfo]:
        """Return the sender of a request about an entrant, and the entrant."""
        principal = await run_in_threadpool(self._access.submitter, request)
        info = await run_in_threadpool(reading.read_entrant, self._store.database, entrant)
        await run_in_threadpool(self._access.check_player, request, principal, info)
        return principal, info

    def _place(self, request: Request, package: str, version: str) -> tuple[str, str]:
        found = self._access.place(request, package, version, self._play_address, self._store.process)
        if found is None:
            raise Unsupported("this hub does not run environments, so no matches are played on it")
        return found
