"""`gymnasium:ID`: environments of Gymnasium, such as `FrozenLake-v1` or `minigrid:MiniGrid-Empty-5x5-v0`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Json

from ludus.formats.hosting import HostingSettings, host_environments
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class GymnasiumSettings(HostingSettings):
    """The options of `gymnasium:`."""

    make: Json[dict[str, Any]] | None = None
    """The keyword arguments of `gymnasium.make`, as JSON: `make={"is_slippery":false}`."""
    observation: Literal["auto", "text", "image", "none"] = "auto"
    """How the agent sees observations: arrays that are images (uint8 from 0 to 255) as images and the rest as text, all
    as text, only the images, or not at all."""
    render: Literal["none", "ansi", "rgb_array"] = "none"
    """What an observation shows in addition: nothing, the text or the image that the environment renders."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment with an id.

    Raises:
        AuthoringError: Gymnasium is missing, there is no such environment, or an option cannot be used.
    """
    return host_environments("gymnasium", source.target, source.settings(GymnasiumSettings))
