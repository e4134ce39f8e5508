"""MCP over stdin and stdout: one process, one client, either era.

With an environment, the process serves one episode with that episode's tools, like the agent endpoint. Without one, it
serves the catalog: `list_environments`, `start_episode`, and `call_tool` for the episode's tools, because a tool list
may not change as a side effect of a call. The user who started the process owns it, so there is no credential. The
extension's methods are served too, unless `play_only` is set.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from ludus.protocol.episodes import StartParams
from ludus.protocol.errors import InvalidParams
from ludus.protocol.methods import Scope
from ludus.protocol.modules import Module
from ludus.server.auth.principal import Principal
from ludus.server.transports.mcp.agent_endpoint import EpisodeServer
from ludus.server.transports.mcp.control_endpoint import catalog_server
from ludus.server.transports.mcp.control_tools import default_split
from ludus.server.transports.mcp.extension import OFFERED_EVERYWHERE, add_extension
from ludus.server.transports.mcp.server import McpServer
from ludus.server.transports.mcp.stdio_lines import bounded_stdio

if TYPE_CHECKING:
    from ludus.server.hosting.host import EpisodeHost

_OWNER: Final = Principal.open()
_AGENT: Final = Principal("agent", frozenset({Scope.TASKS_READ, Scope.EPISODES_RUN}))
"""The principal of `play_only`, which may read no rewards and no tasks of test splits."""


async def serve_stdio(
    host: EpisodeHost,
    *,
    environment: str | None = None,
    split: str | None = None,
    task: str | None = None,
    index: int | None = None,
    seed: int | None = None,
    play_only: bool = False,
) -> None:
    """Serve until stdin ends. `host` must have been entered.

    Args:
        host: the runtime that has the environments.
        environment: the environment of the one episode to start and serve. If this and the next four arguments are
            None, the catalog is served; if only this one is None, it is the only environment of `host`.
        split: the split of the task; the first training split by default.
        task: the task's id.
        index: the task's index in the split.
        seed: the episode's seed.
        play_only: leave out the extension's methods and with them rewards, and give no access to test splits except
            the one that `split` names here.

    Raises:
        InvalidParams: an episode is requested without its environment, and `host` has several environments.
        LudusError: the episode could not be started.
    """
    if environment is None and any(option is not None for option in (split, task, index, seed)):
        environment = _only(host)
    if environment is None:
        principal = _AGENT if play_only else _OWNER
        offered = None if play_only else OFFERED_EVERYWHERE
        await _serve(catalog_server(host, lambda ctx: principal), host, offered)
        return
    params = StartParams(
        environment=environment,
        split=split or default_split(host, environment),
        task=task,
        index=index,
        seed=seed,
        key=secrets.token_hex(16),
    )
    (episode,) = (await host.start(params, _OWNER)).episodes
    try:
        offered = None if play_only else OFFERED_EVERYWHERE - {Module.START_TOOL}
        await _serve(EpisodeServer(host, lambda ctx: episode.episode), host, offered)
    finally:
        await host.discard(episode.episode)


async def _serve(server: McpServer, host: EpisodeHost, offered: frozenset[Module] | None) -> None:
    """Serve until stdin ends, with the extension and these modules of it, or without it."""
    if offered is not None:
        add_extension(server, host, lambda ctx: _OWNER, offered)
    async with bounded_stdio(host.limits.body_bytes) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _only(host: EpisodeHost) -> str:
    """Return the only environment of a host; variants of it do not count as others."""
    first, *others = map(str, host.catalog)
    if any(not other.startswith(f"{first}-") for other in others):
        names = ", ".join([first, *others])
        raise InvalidParams(
            f"the server has several environments: name the one of the episode with --environment: {names}"
        )
    return first
