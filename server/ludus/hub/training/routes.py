"""The JSON API of live training runs, under /api/v1.

    POST   /training                     OpenTraining → TrainingInfo: opens a run, or continues it
    GET    /training?page=&own=          TrainingList
    GET    /training/{run}               TrainingInfo
    DELETE /training/{run}
    PUT    /training/{run}/visibility    SetVisibility → TrainingInfo
    POST   /training/{run}/points        PointBatch → BatchKept
    GET    /training/{run}/points?from=  PointPage: points as they were sent
    GET    /training/{run}/curves        CurveSet, with an ETag
    POST   /training/{run}/alive         Alive → TrainingInfo
    POST   /training/{run}/end           EndTraining → TrainingInfo
    POST   /training/{run}/rollouts      TrainingRollout → TrainingInfo; GET returns them as JSON lines

What changes a run needs a token with the scope `training`. A private run answers strangers like one that does not
exist.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from ludus.hub.downloads import PRIVATE
from ludus.hub.hub import Hub
from ludus.hub.people.viewers import Viewer
from ludus.hub.results.routes import body_of
from ludus.hub.training.access import require_sender
from ludus.hub.training.curves import BUCKETS
from ludus.hub.training.rollouts import SampleStore
from ludus.hub.training.store import TrainingStore
from ludus.registry.types.training import (
    CONFIG_BYTES,
    ROLLOUT_BYTES,
    Alive,
    BatchKept,
    CurveSet,
    EndTraining,
    OpenTraining,
    PointBatch,
    PointPage,
    SetVisibility,
    TrainingInfo,
    TrainingList,
    TrainingRollout,
)

OPEN_BYTES: Final = 4 * CONFIG_BYTES
"""The largest request that opens a run: a configuration with escapes, and what else it has."""

TAGS: Final[list[str | Enum]] = ["Training"]


class TrainingRoutes:
    """The routes.

    Args:
        hub: the hub.
        store: the training runs.
        samples: their sample rollouts.
    """

    def __init__(self, hub: Hub, store: TrainingStore, samples: SampleStore) -> None:
        self._hub = hub
        self._store = store
        self._samples = samples

    def router(self) -> APIRouter:
        """Return all routes."""
        routes = APIRouter(prefix="/api/v1")
        self._add_reading(routes)
        self._add_sending(routes)
        self._add_owning(routes)
        return routes

    def _sender(self, request: Request) -> Viewer:
        viewer = self._hub.authenticator.principal(request)
        require_sender(viewer)
        if not self._hub.authenticator.is_open:
            self._hub.people.rates.hit("training", viewer.name)
        return viewer

    def _shown(self, request: Request, info: TrainingInfo) -> TrainingInfo:
        return info.model_copy(update={"url": self._hub.base_url(request) + info.url})

    def _add_reading(self, routes: APIRouter) -> None:
        hub, store, samples = self._hub, self._store, self._samples

        @routes.get("/training", tags=TAGS, summary="List training runs")
        def runs(
            request: Request, page: Annotated[int, Query(ge=1, le=100_000)] = 1, own: bool = False
        ) -> TrainingList:
            found, total = store.runs(hub.viewer(request), page, own=own)
            return TrainingList(runs=tuple(self._shown(request, one) for one in found), total=total, page=page)

        @routes.get("/training/{run}", tags=TAGS, summary="Show a training run")
        def show(request: Request, run: str) -> TrainingInfo:
            return self._shown(request, store.info(hub.viewer(request), run))

        @routes.get("/training/{run}/points", tags=TAGS, summary="Show points as they were sent")
        def points(
            request: Request, run: str, start: Annotated[int, Query(alias="from", ge=0, le=2**31 - 1)] = 0
        ) -> PointPage:
            return store.points(hub.viewer(request), run, start)

        @routes.get("/training/{run}/curves", tags=TAGS, summary="Show the curves", response_model=CurveSet)
        def curves(request: Request, run: str, buckets: Annotated[int, Query(ge=1, le=BUCKETS)] = BUCKETS) -> Response:
            info, found = store.curves(hub.viewer(request), run)
            etag = f'"{found.attempts}-{found.upto}-{buckets}"'
            headers = {**PRIVATE, "etag": etag}
            if etag in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers=headers)
            shown = tuple(one.curve(name, buckets) for name, one in found.metrics.items())
            body = CurveSet(key=info.key, upto=found.upto, curves=shown).model_dump_json(by_alias=True)
            return Response(body, media_type="application/json", headers=headers)

        @routes.get(
            "/training/{run}/rollouts", tags=TAGS, summary="Download the sample rollouts", response_class=Response
        )
        def rollouts(request: Request, run: str) -> Response:
            lines = samples.lines(hub.viewer(request), run)
            return StreamingResponse(lines, media_type="application/x-ndjson", headers=PRIVATE)

    def _add_sending(self, routes: APIRouter) -> None:
        hub, store, samples = self._hub, self._store, self._samples

        @routes.post("/training", tags=TAGS, summary="Open a training run, or continue it")
        async def begin(request: Request, response: Response) -> TrainingInfo:
            viewer = await run_in_threadpool(self._sender, request)
            sent = await body_of(request, OpenTraining, OPEN_BYTES)
            info, is_new = await run_in_threadpool(store.open, viewer, sent, hub.authenticator.address(request))
            response.status_code = 201 if is_new else 200
            hub.counts["training:opened"] += is_new
            return self._shown(request, info)

        @routes.post("/training/{run}/points", tags=TAGS, summary="Append a numbered batch of points")
        async def append(request: Request, run: str) -> BatchKept:
            viewer = await run_in_threadpool(self._sender, request)
            batch = await body_of(request, PointBatch, hub.settings.training.batch_bytes)
            kept = await run_in_threadpool(store.append, viewer, run, batch)
            hub.counts["training:batches"] += 1
            return kept

        @routes.post("/training/{run}/alive", tags=TAGS, summary="Say that the run goes on")
        async def alive(request: Request, run: str) -> TrainingInfo:
            viewer = await run_in_threadpool(self._sender, request)
            sent = await body_of(request, Alive)
            return self._shown(request, await run_in_threadpool(store.hear, viewer, run, sent.attempt))

        @routes.post("/training/{run}/end", tags=TAGS, summary="End a training run")
        async def end(request: Request, run: str) -> TrainingInfo:
            viewer = await run_in_threadpool(self._sender, request)
            sent = await body_of(request, EndTraining)
            return self._shown(request, await run_in_threadpool(store.end, viewer, run, sent))

        @routes.post("/training/{run}/rollouts", tags=TAGS, summary="Attach a sample rollout")
        async def attach(request: Request, run: str) -> TrainingInfo:
            viewer = await run_in_threadpool(self._sender, request)
            sent = await body_of(request, TrainingRollout, 2 * ROLLOUT_BYTES)
            await run_in_threadpool(samples.add, viewer, run, sent)
            return self._shown(request, await run_in_threadpool(store.info, viewer, run))

    def _add_owning(self, routes: APIRouter) -> None:
        hub, store = self._hub, self._store

        @routes.put("/training/{run}/visibility", tags=TAGS, summary="Make a training run private or public")
        async def visibility(request: Request, run: str) -> TrainingInfo:
            viewer = await run_in_threadpool(self._sender, request)
            sent = await body_of(request, SetVisibility)
            address = hub.authenticator.address(request)
            info = await run_in_threadpool(store.set_visibility, viewer, run, sent.visibility, address)
            return self._shown(request, info)

        @routes.delete("/training/{run}", tags=TAGS, summary="Delete a training run", status_code=204)
        def remove(request: Request, run: str) -> None:
            store.delete(self._sender(request), run, hub.authenticator.address(request))
            hub.counts["training:deleted"] += 1
