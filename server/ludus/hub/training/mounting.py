"""Adds the training runs to the hub's application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.hub.training.personal import PersonalTraining
from ludus.hub.training.rollouts import SampleStore
from ludus.hub.training.routes import TrainingRoutes
from ludus.hub.training.store import TrainingStore

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.hub import Hub


def mount_training(app: FastAPI, hub: Hub) -> None:
    """Add the routes. The state of the application gets `training`, the store, and `training_rollouts`."""
    store = TrainingStore(hub.database, hub.settings.training)
    samples = SampleStore(hub.database, hub.settings.training)
    app.state.training, app.state.training_rollouts = store, samples
    app.include_router(TrainingRoutes(hub, store, samples).router())
    personal = PersonalTraining(hub.database)
    hub.people.data.add("training", personal.export, personal.delete)
