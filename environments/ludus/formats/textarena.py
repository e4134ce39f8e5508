"""`textarena:ID`: games of TextArena, such as `textarena:TicTacToe-v0`, or `all`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, Json

from ludus.formats.hosting import HostingSettings, host_environments
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class TextArenaSettings(HostingSettings):
    """The options of `textarena:`."""

    make: Json[dict[str, Any]] | None = None
    """The keyword arguments of `textarena.make`, as JSON. For one game only."""
    players: int | None = Field(default=None, ge=1, le=15)
    """The number of players; by default the smallest with which the game is played. For one game only."""
    player: int = Field(default=0, ge=0, le=14)
    """The player that the agent is."""
    opponent_text: str | None = None
    """What the opponents always say; by default each chooses at random among the moves that its observation shows."""
    history: Literal["new", "full"] = "new"
    """What an observation shows: what is new in TextArena's observation, or all of it, which often repeats the game."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return an environment for each game that a source names.

    Raises:
        AuthoringError: TextArena is missing, there is no such game, or an option cannot be used.
    """
    return host_environments("textarena", source.target, source.settings(TextArenaSettings))
