"""What a Docker image runs as its MCP server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ludus.formats.mcp.settings import McpSettings
from ludus.formats.mcp.targets import ServerSpec
from ludus.protocol.errors import AuthoringError
from ludus.sandbox import ImageProvider, SandboxProvider


async def image_command(spec: ServerSpec, provider: SandboxProvider, settings: McpSettings) -> ServerSpec:
    """Return the server of an image with its whole command, variables and directory.

    Raises:
        AuthoringError: the image has no entry point.
        SandboxImageError: it does not exist, or cannot be run here.
    """
    if isinstance(provider, ImageProvider):
        await provider.obtain(settings.sandbox_settings(spec.image))
    config = await asyncio.to_thread(_config, str(spec.image))
    entry, usual = config.get("Entrypoint") or [], config.get("Cmd") or []
    command = (*entry, *(spec.command or usual))
    if not command:
        raise AuthoringError(
            f"docker: the image {spec.image} has neither an entry point nor a command; name the program after it: "
            "docker:'IMAGE PROGRAM ARGUMENTS'"
        )
    variables = dict(one.partition("=")[::2] for one in config.get("Env") or [])
    return replace(spec, command=command, env=variables, cwd=settings.cwd or config.get("WorkingDir") or None)


def _config(image: str) -> Mapping[str, Any]:
    import docker  # an extra

    client = docker.from_env()
    try:
        found: Mapping[str, Any] = client.images.get(image).attrs["Config"]
    finally:
        client.close()
    return found
