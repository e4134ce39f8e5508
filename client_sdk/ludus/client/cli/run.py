"""`ludus run`: play tasks of a split with a policy, and report what came of it."""

from __future__ import annotations

from typing import Final

import typer

COMMANDS: Final = {"run": "Play tasks with a policy and report rewards."}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(lambda: None)
