"""Incident ids: one id in the error that a client gets and in the server's log, so that an operator finds the cause."""

from __future__ import annotations

import secrets


def new_incident() -> str:
    """Return a new incident id of 80 random bits, such as `inc-3f…`."""
    return f"inc-{secrets.token_hex(10)}"
