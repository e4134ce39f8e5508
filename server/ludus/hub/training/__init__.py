"""Live training runs: trainers report their metrics while they train, and the site shows them as curves.

store.py      runs and batches in the database
opening.py    runs that are opened and continued
curves.py     curves of any length in bounded memory
columns.py    how batches are kept
rollouts.py   sample rollouts
access.py     who sees and who changes a run
personal.py   what an export and a deletion of an account mean for training runs
checking.py   whether all points are there and unchanged
routes.py     the JSON API
limits.py     the limits
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.hub import Hub

__all__ = ["mount"]


def mount(app: FastAPI, hub: Hub) -> None:
    """Add the training runs to a hub's application."""
    from ludus.hub.training.mounting import mount_training

    mount_training(app, hub)
