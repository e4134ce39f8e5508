"""The control endpoint's plain tools, with which a host that knows only MCP finds, starts and plays episodes.

None of them shows a reward, a task's fields or anything else that the agent endpoint hides, because a model reads their
results. A caller that declares the extension and may read rewards gets them in `_meta`. No other caller does, because a
host may show `_meta` to a model too.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp import MCPError

from ludus.protocol.content import ImageBlock
from ludus.protocol.episodes import EnvironmentInfo, ListEnvironmentsResult, StartedEpisode, StartResult
from ludus.protocol.errors import LudusError, RequestError
from ludus.protocol.identifiers import EXTENSION_ID
from ludus.protocol.methods import GET_EPISODE, LIST_ENVIRONMENTS, START, Scope
from ludus.server.hosting.dispatch import dispatch
from ludus.server.transports.mcp.encoding import blocks, observation, prompt_text, refused, text_result, tool_result
from ludus.server.transports.mcp.server import Context
from ludus.server.web.proxies import address_seen

if TYPE_CHECKING:
    from ludus.server.auth.principal import Principal
    from ludus.server.hosting.host import EpisodeHost

_TEXT: Final = {"type": "string"}

TOOLS: Final = (
    types.Tool(
        name="list_environments",
        description="List the environments of this server: what each is about, its splits and its tools.",
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
        annotations=types.ToolAnnotations(read_only_hint=True),
    ),
    types.Tool(
        name="start_episode",
        description=(
            "Start an episode of an environment. Answers with the task, the episode's id and tools, and the URL of an "
            "MCP server where this one episode is played. An episode that is not used for some minutes expires."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "environment": {**_TEXT, "description": "An environment's name, from list_environments."},
                "split": {**_TEXT, "description": "Which tasks to draw from; the first training split by default."},
                "task": {**_TEXT, "description": "A task's id. Without `task` and `index`, one is drawn."},
                "index": {"type": "integer", "minimum": 0, "description": "A task's place in the split."},
                "seed": {"type": "integer", "minimum": 0, "description": "Makes chance repeatable."},
            },
            "required": ["environment"],
            "additionalProperties": False,
        },
        annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False),
    ),
    types.Tool(
        name="call_tool",
        description=(
            "Call one of an episode's own tools, for hosts that cannot connect to the episode's URL. "
            "Answers with what the tool shows."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "episode": {**_TEXT, "description": "The episode's id, from start_episode."},
                "tool": {**_TEXT, "description": "The name of one of the episode's tools."},
                "arguments": {"type": "object", "description": "The tool's arguments, as its schema says."},
            },
            "required": ["episode", "tool"],
            "additionalProperties": False,
        },
        annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False),
    ),
)
"""The tools, which are the same for all callers."""


class ControlTools:
    """The handlers of `tools/list` and `tools/call` on the control endpoint.

    Args:
        host: the runtime that has the environments.
        principal_of: returns the principal of a request.
        declares_extension: returns whether a request's client knows the extension.
    """

    def __init__(
        self,
        host: EpisodeHost,
        principal_of: Callable[[Context], Principal],
        declares_extension: Callable[[Context], bool],
    ) -> None:
        self._host = host
        self._principal_of = principal_of
        self._declares_extension = declares_extension
        self._tools = {
            "list_environments": self._list_environments,
            "start_episode": self._start_episode,
            "call_tool": self._call_tool,
        }

    async def list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """Handle `tools/list`."""
        return types.ListToolsResult(tools=list(TOOLS))

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        """Handle `tools/call`."""
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:200]}")
        try:
            return await tool(ctx, params.arguments or {})
        except RequestError as error:
            return text_result(error.message, is_error=True)
        except LudusError as error:
            return refused(error)

    async def _list_environments(self, ctx: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        _only(arguments, "list_environments")
        result = await dispatch(self._host, LIST_ENVIRONMENTS.name, {}, self._principal_of(ctx))
        assert isinstance(result, ListEnvironmentsResult)
        return text_result("\n\n".join(map(_describe, result.environments)) or "This server has no environments.")

    async def _start_episode(self, ctx: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        _only(arguments, "start_episode")
        split = arguments.get("split") or default_split(self._host, arguments["environment"])
        params = {**arguments, "split": split, "key": secrets.token_hex(16)}
        result = await dispatch(self._host, START.name, params, self._principal_of(ctx))
        assert isinstance(result, StartResult)
        (episode,) = result.episodes
        # Some clients keep only the first block of a result, so it holds all the text. Images follow it.
        parts = [
            f"Episode {episode.episode} of {arguments['environment']} has begun.",
            f"The task:\n{prompt_text(episode.prompt)}",
            _how_to_play(episode, address_seen(ctx.request.scope) if ctx.request is not None else None),
        ]
        content = [block for message in episode.prompt for block in message.content]
        images = blocks([block for block in content if isinstance(block, ImageBlock)])
        return tool_result([{"type": "text", "text": "\n\n".join(parts)}, *images])

    async def _call_tool(self, ctx: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        _only(arguments, "call_tool")
        episode, tool, tool_arguments = arguments.get("episode"), arguments.get("tool"), arguments.get("arguments", {})
        if not isinstance(episode, str) or not isinstance(tool, str) or not isinstance(tool_arguments, dict):
            return text_result(
                "call_tool needs `episode` and `tool` as text, and `arguments` as an object", is_error=True
            )
        principal = self._principal_of(ctx)
        # This request fails for episodes of other principals, and for tokens that may not run episodes.
        await dispatch(self._host, GET_EPISODE.name, {"episode": episode}, principal)
        try:
            result = await self._host.play(episode, tool, tool_arguments)
        except LudusError as error:
            return refused(error)
        content = observation(result, tool)
        if principal.may(Scope.REWARDS_READ) and self._declares_extension(ctx):
            facts = result.model_dump(mode="json", include={"step", "reward", "metadata", "status", "end_reason"})
            content["_meta"] = {EXTENSION_ID: facts}
        return content


def _only(arguments: Mapping[str, Any], name: str) -> None:
    (tool,) = (tool for tool in TOOLS if tool.name == name)
    properties = tool.input_schema["properties"]
    for argument in arguments:
        if argument not in properties:
            raise RequestError(f"{name} has no argument {argument[:200]!r}; it has {', '.join(properties) or 'none'}")
    for argument in tool.input_schema.get("required", ()):
        if argument not in arguments:
            raise RequestError(f"{name} needs the argument {argument!r}")


def default_split(host: EpisodeHost, environment: object) -> str:
    """Return the split to use when none is named: the first training split, else the first split."""
    published = host.catalog.get(environment) if isinstance(environment, str) else None
    splits = published.info.splits if published else ()
    return next((split.name for split in splits if split.type == "train"), splits[0].name if splits else "train")


def _describe(info: EnvironmentInfo) -> str:
    splits = ", ".join(
        f"{split.name} ({'endless' if split.count is None else f'{split.count} tasks'})" for split in info.splits
    )
    tools = ", ".join(tool.name for tool in info.tools)
    return f"{info.name} {info.version}\n{info.description}\nSplits: {splits}\nTools: {tools}"


def _how_to_play(episode: StartedEpisode, base_url: str | None) -> str:
    tools = "\n".join(
        f"- {tool.name}: {tool.description}\n  arguments: {json.dumps(tool.input_schema)}" for tool in episode.tools
    )
    by_hand = f'Its tools are called with call_tool(episode="{episode.episode}", tool=…, arguments=…):\n{tools}'
    if base_url is None or episode.play is None:
        return by_hand
    until = datetime.fromtimestamp(episode.play.expires_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"Play it as an MCP server (Streamable HTTP) at this secret URL, good until {until}:\n"
        f"{base_url}{episode.play.path}\n\nOr from here. {by_hand}"
    )
