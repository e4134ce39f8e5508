"""Verified runs: the hub runs a harness by its digest, and is its only way to the episode and to the model.

runs.py          registration, and playing a run to its end
harnesses.py     harnesses by their digest; own_harness.py is the hub's own
boxes.py         the sandbox of a harness; child.py is the program inside, places.py where it finds things
door.py          the only way out of a sandbox: the episode and the model
model_proxy.py   calls of the model: checked (requests.py), counted, and read (answers.py)
model_hosts.py   which endpoints the hub calls
sealing.py       keys of accounts for endpoints
routes.py        the JSON API; settings.py: the limits
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.hub import Hub

__all__ = ["mount"]


def mount(app: FastAPI, hub: Hub) -> None:
    """Add verified runs to a hub's application."""
    from ludus.hub.verified.mounting import mount_verified  # the process of a harness needs none of it

    mount_verified(app, hub)
