"""The JSON API of verified runs, under /api/v1; what they share with other runs is in `ludus.hub.results.routes`.

POST /environments/{owner}/{name}/versions/{version}/verified-runs   VerifiedParams → RunInfo
GET  /runs/{run}/calls?page=       RunCalls, once the run has ended
GET  /runs/{run}/outputs?page=     HarnessOutputs, for the account of the run
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool

from ludus.hub.hub import Hub
from ludus.hub.results.access import Access
from ludus.hub.results.routes import VERSION, body_of, ended
from ludus.hub.results.store import ResultStore
from ludus.hub.results.verified_store import VerifiedStore
from ludus.hub.verified.runs import VerifiedRuns
from ludus.protocol.errors import Forbidden
from ludus.registry.types.results import RunInfo
from ludus.registry.types.verified import HarnessOutputs, RunCalls, VerifiedParams

Page = Annotated[int, Query(ge=1, le=100_000)]


def verified_router(hub: Hub, results: ResultStore, store: VerifiedStore, runs: VerifiedRuns) -> APIRouter:
    """Return the routes."""
    routes, access = APIRouter(prefix="/api/v1", tags=["Results"]), Access(hub)

    @routes.post(f"{VERSION}/verified-runs", summary="Register a verified run", status_code=201)
    async def register(request: Request, owner: str, name: str, version: str) -> RunInfo:
        viewer = await run_in_threadpool(access.submitter, request, f"{owner}/{name}")
        params = await body_of(request, VerifiedParams)
        record = await run_in_threadpool(access.version, request, owner, name, version)
        publisher = await run_in_threadpool(access.is_publisher, viewer, record)
        catalog = await run_in_threadpool(hub.catalog, request)
        run = await runs.register(viewer, catalog, record, params, by_publisher=publisher)
        hub.counts["results:verified"] += 1
        return run

    @routes.get("/runs/{run}/calls", summary="List the calls of the model in an ended verified run")
    def calls(request: Request, run: str, page: Page = 1) -> RunCalls:
        info = ended(access.check_run(request, results.run(run)))
        found, total = store.call_page(info.key, page)
        return RunCalls(run=info.key, calls=tuple(found), total=total, page=page)

    @routes.get("/runs/{run}/outputs", summary="List how the harness of a verified run has ended")
    def outputs(request: Request, run: str, page: Page = 1) -> HarnessOutputs:
        viewer = access.submitter(request)
        info = results.run(run)
        access.check_acting(request, viewer, info)
        if info.by != viewer.name:
            raise Forbidden(f"the run {info.key} is of {info.by!r}, not of {viewer.name!r}")
        return HarnessOutputs(outputs=tuple(store.outputs(info.key, page)))

    return routes
