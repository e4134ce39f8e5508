"""`mcp:TARGET` and `docker:IMAGE`: stock MCP servers as environments, with tasks and a verifier from files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ludus.formats.mcp.environment import mcp_environment
from ludus.formats.mcp.settings import DockerSettings, McpSettings
from ludus.formats.mcp.targets import ServerSpec, read_target
from ludus.protocol.errors import AuthoringError
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource

__all__ = ["resolve", "resolve_image"]


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment of one MCP server, or of several that are composed.

    Raises:
        AuthoringError: the target, the tasks, the verifier or an option cannot be used.
    """
    settings = source.settings(McpSettings)
    return [mcp_environment("mcp", read_target(source.target, settings), settings)]


def resolve_image(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment of the MCP server that is the entry point of a Docker image.

    Raises:
        AuthoringError: the target, the tasks, the verifier or an option cannot be used.
    """
    settings = source.settings(DockerSettings)
    try:
        image, *arguments = shlex.split(source.target)
    except ValueError as error:
        raise AuthoringError(
            f"docker: {source.target!r} names no image ({error}); write docker:IMAGE, and arguments after it"
        ) from None
    return [mcp_environment("docker", (ServerSpec(command=tuple(arguments), image=image),), settings)]
