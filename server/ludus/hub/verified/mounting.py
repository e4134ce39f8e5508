"""Adds verified runs to the hub's application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ludus.hub.people.viewers import Viewer
from ludus.hub.results.played import PlayedRuns
from ludus.hub.results.processes import LOCKS, ProcessLease
from ludus.hub.results.store import ResultStore
from ludus.hub.results.verified_store import VerifiedStore
from ludus.hub.verified.boxes import Boxes
from ludus.hub.verified.harnesses import Harnesses
from ludus.hub.verified.routes import verified_router
from ludus.hub.verified.runs import LEVEL, VerifiedRuns
from ludus.hub.verified.sealing import KEY_FILE, Sealer

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.hub import Hub

START_SECONDS: Final = 60.0
"""How long the start and the end of a sandbox may take, in addition to the time of an episode."""


def mount_verified(app: FastAPI, hub: Hub) -> None:
    """Add the routes, and play the runs while the hub answers. The state of the application gets `verified`."""
    settings, results = hub.settings.verified, app.state.results
    seconds = settings.episode_seconds + START_SECONDS
    limits = hub.settings.results.model_copy(update={"episode_seconds": seconds, "run_seconds": settings.run_seconds})
    lease = ProcessLease(
        hub.database, hub.settings.data / LOCKS, limits.lease_seconds, hub.settings.peer_url, hub.peers.own
    )
    own = ResultStore(hub.database, hub.settings.results)  # a store writes what is open under one lease
    played = PlayedRuns(own, limits, hub.runner.token, lease, app.state.conclude, LEVEL)
    store, everything = VerifiedStore(hub.database), hub.catalog_of(Viewer.of_administrator("hub"))
    runs = VerifiedRuns(
        hub, settings, results, store, played, Harnesses(hub), Boxes(hub, settings),
        Sealer(hub.settings.data / KEY_FILE), everything,
    )  # fmt: skip
    app.state.verified = runs
    app.include_router(verified_router(hub, results, store, runs))
    hub.at_start(played.begin)
    hub.at_listening(runs.begin)
    hub.at_end(played.close)
    hub.block_watch.on_change += [runs.apply_blocks, played.sweep]
    hub.at_end(runs.close)
