"""Adds the results to the hub's application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.core.error_answers import error_response
from ludus.hub.core.hub_key import KEY_FILE, hub_key
from ludus.hub.core.peers import PeerPaths, PlayedElsewhere
from ludus.hub.endpoints.hosts import PlayAddress
from ludus.hub.results.personal import PersonalResults
from ludus.hub.results.played import PlayedRuns
from ludus.hub.results.processes import LOCKS, ProcessLease
from ludus.hub.results.receipts import concluding
from ludus.hub.results.rollouts import INDEXES, RunRollouts
from ludus.hub.results.routes import ResultRoutes
from ludus.hub.results.store import ResultStore
from ludus.protocol.errors import LudusError
from ludus.registry.types.signing import public_key

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.parts.hub import Hub


@dataclass(frozen=True, slots=True)
class ResultParts:
    """The results of a hub, as its other parts use them."""

    store: ResultStore
    rollouts: RunRollouts
    """The uploaded trajectories of runs."""
    played: PlayedRuns
    receipt_key: Ed25519PrivateKey


def mount_results(app: FastAPI, hub: Hub, play_address: PlayAddress) -> ResultParts:
    """Add the routes, and look after played runs while the application runs.

    Args:
        app: the application.
        hub: the hub.
        play_address: where versions run.
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

    routes = ResultRoutes(hub, store, played, rollouts, conclude, play_address, public_key(key))
    app.include_router(routes.router())
    personal = PersonalResults(hub.database, hub.blobs, rollouts)
    hub.people.data.add("results", personal.export, personal.delete)
    hub.at_start(played.begin)
    hub.block_watch.on_change.append(played.sweep)
    hub.at_end(played.close)
    return ResultParts(store, rollouts, played, key)


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
