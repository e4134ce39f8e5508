from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from ludus.formats.hosting import HostingSettings, host_environments
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class DiceSettings(HostingSettings):
    """The options of `dice:`."""

    rolls: int = Field(default=1, ge=1, le=100)
    """How many dice are added up."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environments that a source names: here one, a die with as many sides as the target says."""
    return host_environments(
        "dice", source.target, source.settings(DiceSettings), Path(__file__).with_name("dice_adapter.py")
    )
