"""`bfcl:CATEGORY`: multi-turn tasks of the Berkeley function calling leaderboard, such as `bfcl:multi_turn_base`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ludus.formats.hosting import HostingSettings, host_environments
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class BfclSettings(HostingSettings):
    """The options of `bfcl:`."""

    decides_tool_errors = "the leaderboard shows the agent each error of a function, and scores what follows"

    instructions: bool = True
    """Whether a system message, which is not the leaderboard's, says how to answer the user and go on."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment of a category, or those of all four for `multi_turn`.

    Raises:
        AuthoringError: the package is missing, there is no such category, or an option cannot be used.
    """
    return host_environments("bfcl", source.target, source.settings(BfclSettings))
