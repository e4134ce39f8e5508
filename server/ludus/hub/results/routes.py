"""The JSON API of results, under /api/v1.

    GET  /environments/{owner}/{name}/versions/{version}/boards                      BoardList
    GET  /environments/{owner}/{name}/versions/{version}/board?environment=&split=&level=   Board
    POST /environments/{owner}/{name}/versions/{version}/results                     Submission → RunInfo (reported)
    POST /environments/{owner}/{name}/versions/{version}/runs                        RunParams → RunInfo (played)
    GET  /runs/{run}                   RunInfo
    GET  /runs/{run}/rows?page=        RunEpisodes, once the run has ended
    GET  /runs/{run}/receipt           Receipt
    POST /runs/{run}/episodes          NextEpisode: starts the next episode of a played run
    GET  /runs/{run}/episodes          OpenTickets
    POST /runs/{run}/episodes/{place}/end   EndEpisodeParams → EpisodeEnd
    POST /runs/{run}/end               RunInfo
    POST /runs/{run}/rollouts          trajectories of a reported run; GET returns them
    POST /runs/{run}/remove            RemoveParams → RunInfo
    POST /runs/{run}/rescore           RemoveParams → RunInfo
    GET  /results/log?page=            ResultsLog
    GET  /results/key                  the hub's public key

The rewards of a played run are shown when it has ended.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ValidationError

from ludus.hub.core.downloads import PRIVATE, BlobResponse
from ludus.hub.endpoints.hosts import PlayAddress
from ludus.hub.parts.hub import Hub
from ludus.hub.results.access import Access
from ludus.hub.results.played import PlayedRuns
from ludus.hub.results.reported import submit
from ludus.hub.results.rollouts import RunRollouts
from ludus.hub.results.store import Conclude, ResultStore
from ludus.hub.settings.results import ResultLimits
from ludus.protocol.bounds import check_json
from ludus.protocol.errors import Conflict, Forbidden, InvalidParams, NotFound, PayloadTooLarge, Unsupported
from ludus.protocol.messages import describe_invalid
from ludus.protocol.model import WireModel
from ludus.registry.types.receipts import Receipt, SignedReceipt
from ludus.registry.types.results import (
    USUAL_LEVEL,
    BoardKey,
    BoardList,
    EndEpisodeParams,
    EpisodeEnd,
    Level,
    NextEpisode,
    OpenTickets,
    RemoveParams,
    ResultsLog,
    RunEpisodes,
    RunInfo,
    RunParams,
    Submission,
)

M = TypeVar("M", bound=WireModel)

SMALL_BODY: Final = 64 * 1024
"""The largest request that is not an upload, in bytes."""

VERSION: Final = "/environments/{owner}/{name}/versions/{version}"


class PublicKeyInfo(BaseModel):
    """The key with which a hub signs receipts."""

    key: str


class ResultRoutes:
    """The routes.

    Args:
        hub: the hub.
        store: the results in the database.
        played: the played runs.
        rollouts: the uploaded trajectories.
        conclude: computes what a run leads to.
        play_address: where versions run.
        key: the hub's public key.
    """

    def __init__(
        self, hub: Hub, store: ResultStore, played: PlayedRuns, rollouts: RunRollouts, conclude: Conclude,
        play_address: PlayAddress, key: str,
    ) -> None:  # fmt: skip
        self._hub = hub
        self._access = Access(hub)
        self._store = store
        self._played = played
        self._rollouts = rollouts
        self._conclude = conclude
        self._play_address = play_address
        self._key = key
        self._limits: ResultLimits = hub.settings.results

    def router(self) -> APIRouter:
        """Return all routes."""
        routes = APIRouter(prefix="/api/v1")
        self._add_reading(routes)
        self._add_submitting(routes)
        self._add_playing(routes)
        return routes

    def _add_reading(self, routes: APIRouter) -> None:
        access, store = self._access, self._store

        @routes.get(f"{VERSION}/boards", tags=["Results"], summary="List the boards of a version")
        def boards(request: Request, owner: str, name: str, version: str) -> BoardList:
            record = access.version(request, owner, name, version)
            keys = tuple(
                BoardKey(package=board.package, version=board.version, environment=board.environment, split=board.split,
                         level=board.level)
                for board in store.boards(record.id, record.version)
            )  # fmt: skip
            return BoardList(id=record.id, version=record.version, boards=keys)

        @routes.get(f"{VERSION}/board", tags=["Results"], summary="Show a board", response_class=Response)
        def board(
            request: Request, owner: str, name: str, version: str,
            environment: Annotated[str, Query(max_length=300)], split: Annotated[str, Query(max_length=300)],
            level: Level = USUAL_LEVEL, page: Annotated[int, Query(ge=1, le=100_000)] = 1,
        ) -> Response:  # fmt: skip
            record = access.version(request, owner, name, version)
            key = BoardKey(package=record.id, version=record.version, environment=environment, split=split, level=level)
            found = store.board(key, page)
            if found is None:
                raise NotFound(f"{record.id} {record.version} has no {level} results of {environment} / {split} yet")
            return Response(found.model_dump_json(by_alias=True), media_type="application/json")

        @routes.get("/runs/{run}", tags=["Results"], summary="Show a run")
        def show(request: Request, run: str) -> RunInfo:
            return access.check_run(request, store.run(run))

        @routes.get("/runs/{run}/rows", tags=["Results"], summary="List the episodes of an ended run")
        def rows(request: Request, run: str, page: Annotated[int, Query(ge=1, le=100_000)] = 1) -> RunEpisodes:
            info = ended(access.check_run(request, store.run(run)))
            found, total = store.rows(run, page)
            return RunEpisodes(
                run=info.key, episodes=tuple(found), total=total, page=page,
                opening=store.opening(run) if page == 1 else None,
            )  # fmt: skip

        @routes.get("/runs/{run}/receipt", tags=["Results"], summary="Get the signed receipt of a played run")
        def receipt(request: Request, run: str) -> Response:
            ended(access.check_run(request, store.run(run)))
            text = store.receipt(run)
            if text is None:
                raise NotFound(f"the run {run[:40]} has no receipt: only played runs have one")
            signed = SignedReceipt.model_validate_json(text)
            whole = Receipt(
                statement=signed.statement,
                key=signed.key,
                signature=signed.signature,
                episodes=tuple(store.rows(run)[0]),
            )
            return Response(whole.model_dump_json(by_alias=True), media_type="application/json")

        @routes.get("/results/log", tags=["Results"], summary="List removals and rescorings")
        def log(request: Request, page: Annotated[int, Query(ge=1, le=100_000)] = 1) -> ResultsLog:
            entries, total = store.log(page, access.hidden(request))
            return ResultsLog(entries=tuple(entries), total=total, page=page)

        @routes.get("/results/key", tags=["Results"], summary="Show the key with which receipts are signed")
        def key() -> PublicKeyInfo:
            return PublicKeyInfo(key=self._key)

    def _add_submitting(self, routes: APIRouter) -> None:
        access = self._access

        @routes.post(f"{VERSION}/results", tags=["Results"], summary="Upload the results of an evaluation")
        async def upload(request: Request, response: Response, owner: str, name: str, version: str) -> RunInfo:
            principal = await run_in_threadpool(access.submitter, request, f"{owner}/{name}")
            sent = await body_of(request, Submission, self._limits.submission_bytes)

            def keep() -> tuple[RunInfo, bool]:
                record = access.version(request, owner, name, version)
                publisher = access.is_publisher(principal, record)
                return submit(self._store, self._conclude, principal, record, sent, by_publisher=publisher)

            info, is_new = await run_in_threadpool(keep)
            response.status_code = 201 if is_new else 200
            self._hub.counts["results:reported"] += is_new
            return info

        @routes.post("/runs/{run}/rollouts", tags=["Results"], summary="Upload the trajectories of a reported run")
        async def add_rollouts(request: Request, run: str) -> RunInfo:
            principal = await run_in_threadpool(access.submitter, request)
            info = await run_in_threadpool(self._store.run, run)
            await run_in_threadpool(access.check_rollouts, request, principal, info)
            digest = await self._rollouts.receive(request.stream())
            await run_in_threadpool(self._store.set_rollouts, run, digest)
            return await run_in_threadpool(self._store.run, run)

        @routes.get(
            "/runs/{run}/rollouts", tags=["Results"], summary="Download the uploaded trajectories of a run",
            response_class=Response,
        )  # fmt: skip
        def rollouts(request: Request, run: str) -> BlobResponse:
            info = access.check_run(request, self._store.run(run))
            digest = self._rollouts.digest(info)
            headers = {**PRIVATE, "content-disposition": f'attachment; filename="{info.key}.jsonl"'}
            return BlobResponse(self._hub.blobs, digest, "application/x-ndjson", headers)

        @routes.post("/runs/{run}/remove", tags=["Results"], summary="Take a run off its board")
        async def remove(request: Request, run: str) -> RunInfo:
            principal = await run_in_threadpool(access.submitter, request)
            sent = await body_of(request, RemoveParams)

            def take_off() -> RunInfo:
                access.check_acting(request, principal, self._store.run(run))
                now, moderates = self._played.now(), access.is_moderator(principal)
                self._store.remove(run, principal.name, sent.reason, now, is_moderator=moderates)
                return self._store.run(run)

            return await run_in_threadpool(take_off)

        @routes.post("/runs/{run}/rescore", tags=["Results"], summary="Score an ended run again, as the operator")
        async def rescore(request: Request, run: str) -> RunInfo:
            principal = await run_in_threadpool(access.submitter, request)
            sent = await body_of(request, RemoveParams)
            if not access.is_moderator(principal):
                raise Forbidden("only the operator of the hub may score runs again")
            now = self._played.now()
            await run_in_threadpool(self._store.rescore, run, principal.name, sent.reason, now, self._conclude)
            return await run_in_threadpool(self._store.run, run)

    def _add_playing(self, routes: APIRouter) -> None:
        access, played, store = self._access, self._played, self._store

        def place(request: Request, package: str, version: str) -> tuple[str, str]:
            found = access.place(request, package, version, self._play_address, played.process)
            if found is None:
                raise Unsupported("this hub does not run environments, so runs cannot be played on it; submit yours")
            return found

        @routes.post(f"{VERSION}/runs", tags=["Results"], summary="Register a played run", status_code=201)
        async def register(request: Request, owner: str, name: str, version: str) -> RunInfo:
            principal = await run_in_threadpool(access.submitter, request, f"{owner}/{name}")
            params = await body_of(request, RunParams)
            record = await run_in_threadpool(access.version, request, owner, name, version)
            publisher = await run_in_threadpool(access.is_publisher, principal, record)
            address, _ = place(request, record.id, record.version)
            self._hub.counts["results:played"] += 1
            return await played.register(principal, record, params, address, by_publisher=publisher)

        @routes.post("/runs/{run}/episodes", tags=["Results"], summary="Start the next episode of a played run")
        async def begin(request: Request, run: str) -> NextEpisode:
            principal = await run_in_threadpool(access.submitter, request)
            info = await run_in_threadpool(store.run, run)
            await run_in_threadpool(access.check_acting, request, principal, info)
            await run_in_threadpool(access.check_offered, request, info)
            await run_in_threadpool(store.check_here, run)
            return await played.next_episode(principal, run, *place(request, info.package, info.version))

        @routes.get("/runs/{run}/episodes", tags=["Results"], summary="List the open episodes of a played run")
        async def tickets(request: Request, run: str) -> OpenTickets:
            principal = await run_in_threadpool(access.submitter, request)
            info = await run_in_threadpool(store.run, run)
            await run_in_threadpool(access.check_acting, request, principal, info)
            await run_in_threadpool(store.check_here, run)
            return await played.tickets(principal, run, place(request, info.package, info.version)[1])

        @routes.post("/runs/{run}/episodes/{number}/end", tags=["Results"], summary="End an episode of a played run")
        async def end(request: Request, run: str, number: int) -> EpisodeEnd:
            principal = await run_in_threadpool(access.submitter, request)
            await run_in_threadpool(access.check_acting, request, principal, await run_in_threadpool(store.run, run))
            await run_in_threadpool(store.check_here, run)
            params = await body_of(request, EndEpisodeParams)
            return await played.end_episode(principal, run, number, params)

        @routes.post("/runs/{run}/end", tags=["Results"], summary="End a run; what is missing counts lowest")
        async def end_run(request: Request, run: str) -> RunInfo:
            principal = await run_in_threadpool(access.submitter, request)
            await run_in_threadpool(access.check_acting, request, principal, await run_in_threadpool(store.run, run))
            await run_in_threadpool(store.check_here, run)
            return await played.end_run(principal, run)


def ended(run: RunInfo) -> RunInfo:
    """Return a run if it has ended.

    Raises:
        Conflict: it is open, so its rewards are not shown.
    """
    if run.state == "open":
        raise Conflict(f"the run {run.key} is open; its episodes are shown when it has ended")
    return run


async def body_of(request: Request, model: type[M], most: int = SMALL_BODY) -> M:
    """Return the body of a request.

    Raises:
        PayloadTooLarge: it has more than `most` bytes, or too many values.
        InvalidParams: it is not valid; the message names the field.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise PayloadTooLarge(f"the request is larger than the {most} bytes that this takes", limit="body_bytes")
    check_json(bytes(body))
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidParams(f"{field + ': ' if field else ''}{describe_invalid(first)}") from None
