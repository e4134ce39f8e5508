"""Adds the results to the hub's application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.error_answers import error_response
from ludus.hub.peers import PeerPaths, PlayedElsewhere
from ludus.hub.results.personal import PersonalResults
from ludus.hub.results.played import PlayedRuns
from ludus.hub.results.processes import LOCKS, ProcessLease
from ludus.hub.results.receipts import concluding
from ludus.hub.results.rollouts import INDEXES, RunRollouts
from ludus.hub.results.routes import ResultRoutes
from ludus.hub.results.store import ResultStore
from ludus.hub.seed import KEY_FILE, hub_key
from ludus.protocol.errors import LudusError
from ludus.registry.types.signing import public_key

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.hub import Hub


def mount_results(app: FastAPI, hub: Hub) -> None:
    """Add the routes, and look after played runs while the application runs.

    The state of the application gets `results`, the store; `played`, the played runs; `run_rollouts`, the uploaded
    trajectories; and `receipt_key`. Where versions run is the state's `play_address`, which the site sets.
    """
    key = hub_key(hub.settings.data / KEY_FILE)
    store, conclude = ResultStore(hub.database, hub.settings.results), concluding(key)
    lease = ProcessLease(
        hub.database,
        hub.settings.data / LOCKS,
        hub.settings.results.lease_seconds,
        hub.settings.peer_url,
        hub.peers.own,
    )
    _pass_on(app, hub, lease)
    played = PlayedRuns(store, hub.settings.results, hub.runner.token, lease, conclude)
    rollouts = RunRollouts(hub.blobs, store, hub.settings.data / INDEXES)

    def play_address(request: Request, owner: str, name: str, version: str) -> str | None:
        found: str | None = request.app.state.play_address(request, owner, name, version)
        return found

    app.state.results, app.state.played, app.state.receipt_key = store, played, key
    app.state.run_rollouts = rollouts
    routes = ResultRoutes(hub, store, played, rollouts, conclude, play_address, public_key(key))
    app.include_router(routes.router())
    personal = PersonalResults(hub.database, hub.blobs, rollouts)
    hub.people.data.add("results", personal.export, personal.delete)
    hub.at_start(played.begin)
    hub.block_watch.on_change.append(played.sweep)
    hub.at_end(played.close)


def _pass_on(app: FastAPI, hub: Hub, lease: ProcessLease) -> None:
    """Let other processes of the hub answer requests about what they play."""
    peers = hub.peers

    async def elsewhere(request: Request, error: Exception) -> Response:
        assert isinstance(error, PlayedElsewhere)
        try:
            return await peers.answer(request, error)
        except LudusError as refusal:
            answer: Any = app.exception_handlers[LudusError]
            refused: Response = await answer(request, refusal)
            return refused

    app.add_exception_handler(PlayedElsewhere, elsewhere)
    app.add_middleware(PeerPaths, peers=peers, own=lambda: lease.id, refuse=error_response)
    hub.at_end(peers.close)
