"""Results of runs on published versions: reported by those who evaluated, or played where the hub scores them.

figures.py    what counts on a board, and the statistics
store.py      boards, runs and episodes in the database; rows.py: its episodes on the wire
boards.py     boards, computed from the runs
played.py     played runs: registration, episodes, deadlines
episodes.py   the hub as the client of a run's endpoint, whose episodes it starts and reads
reported.py   uploads of evaluations; rollouts.py: their trajectories
receipts.py   signed receipts of played runs
personal.py   what an export and a deletion of an account mean for results
routes.py     the JSON API; access.py: who may do what in it
limits.py     the limits on results
processes.py  which process of a hub plays which episodes
mounting.py   adds all of it to the hub's application
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.hub import Hub

__all__ = ["mount"]


def mount(app: FastAPI, hub: Hub) -> None:
    """Add the results to a hub's application."""
    from ludus.hub.results.mounting import mount_results

    mount_results(app, hub)
