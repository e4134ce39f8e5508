"""The agent endpoint: one episode as an ordinary MCP server, at its own URL.

Any MCP client of either era works here unchanged. It finds the episode's tools and its prompt (as an MCP prompt and as
`instructions`). Methods for rewards, tasks and lifecycle do not exist here and are answered with "method not found".

The URL is the credential. A forged or expired URL is answered with 404, not 401: it names nothing that exists, and 401
would make hosts look for an OAuth server. An episode that has ended still lists its tools, and one that the server has
discarded lists none. Calls on either are answered with a tool error, because a 404 makes handshake-era clients start
again and dual-era clients change eras.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import mcp_types as types
from mcp import MCPError
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ludus.protocol.bounds import first_errors
from ludus.protocol.episodes import Key
from ludus.protocol.errors import CapabilityRefused, EpisodeNotFound, LudusError
from ludus.protocol.identifiers import STEP_META_KEY
from ludus.protocol.methods import Scope as TokenScope
from ludus.protocol.model import WireModel
from ludus.server.transports.mcp.encoding import (
    mcp_error,
    observation,
    prompt_messages,
    prompt_text,
    refused,
    tool_list,
    unknown_episode,
)
from ludus.server.transports.mcp.http import Endpoint, Extend
from ludus.server.transports.mcp.server import Context, McpServer
from ludus.server.web.guard import note_known

if TYPE_CHECKING:
    from ludus.server.auth import Claims
    from ludus.server.hosting.host import EpisodeHost
    from ludus.server.transports import TransportContext

_CLAIMS: Final = "ludus.claims"
"""The key of the ASGI scope under which the claims of the request's capability are stored."""

_PROCESS: Final = secrets.token_hex(8)
_calls = itertools.count()
"""The number of the next call without a key. Process and number together make the key that the server gives it."""

_REMEMBERED: Final = 4096
"""The most verified capabilities that are cached, so that their signatures are not checked again."""

PROMPT_NAME: Final = "task"
"""The name of the agent endpoint's only prompt."""


class StepMark(WireModel):
    """The mark that an extension-aware client sets in a call's `_meta`, so that a repeat is not a second step."""

    step: int | None = None
    """The number of this step, as in `episodes/step`; with null, the server numbers the step."""
    key: Key


class AgentEndpoint:
    """The agent endpoint of every episode: one MCP server that takes the episode from the URL.

    The arguments are those of `McpTransport`.
    """

    def __init__(self, context: TransportContext, extend: Extend | None = None, *, back_channel: bool = False) -> None:
        self._host = context.host
        self._signer = context.signer
        self._tokens = context.tokens
        self._known: dict[str, Claims] = {}
        server = EpisodeServer(context.host, lambda ctx: _claims(ctx).episode, lambda ctx: _claims(ctx).made_here)
        self._endpoint = Endpoint(server, context.limits.body_bytes, extend, back_channel=back_channel)
        self.run = self._endpoint.run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request on `PLAY_PATH`."""
        try:
            scope[_CLAIMS] = await self._verified(scope["path_params"]["capability"])
        except CapabilityRefused as error:
            body = {"jsonrpc": "2.0", "id": None, "error": {"code": error.code, "message": error.message}}
            await Response(json.dumps(body), 404, media_type="application/json")(scope, receive, send)
            return
        note_known(scope)
        await self._endpoint(scope, receive, send)

    async def _verified(self, capability: str) -> Claims:
        claims = self._known.get(capability)
        if claims is None or claims.expires_at <= time.time():
            claims = self._signer.verify(capability)
            # An episode that was discarded is reported later, in a tool result.
            with suppress(EpisodeNotFound):
                claims.require_tools([tool.name for tool in (await self._host.view(claims.episode)).tools])
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[capability] = claims
        tokens = self._tokens
        if tokens is not None and not tokens.still_may(claims.credential, TokenScope.EPISODES_RUN):
            raise CapabilityRefused(
                "this play address is not valid any more: the token that started the episode was revoked or has expired"
            )
        return claims


class EpisodeServer(McpServer):
    """An MCP server for episodes.

    Args:
        host: the runtime.
        episode_of: returns the id of a request's episode.
        ran_here: returns whether it is certain that this process started a request's episode.
    """

    def __init__(
        self,
        host: EpisodeHost,
        episode_of: Callable[[Context], str],
        ran_here: Callable[[Context], bool] = lambda ctx: True,
    ) -> None:
        super().__init__()
        self._host = host
        self._episode_of = episode_of
        self._ran_here = ran_here
        self.add_request_handler("tools/list", types.PaginatedRequestParams, self._list_tools)
        self.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        self.add_request_handler("prompts/list", types.PaginatedRequestParams, self._list_prompts)
        self.add_request_handler("prompts/get", types.GetPromptRequestParams, self._get_prompt)

    async def instructions_for(self, ctx: Context) -> str | None:
        """Return the episode's prompt, for hosts that do not support MCP prompts."""
        try:
            return prompt_text((await self._host.view(self._episode_of(ctx))).prompt)
        except EpisodeNotFound:
            return unknown_episode(self._ran_here(ctx))

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        """Handle `tools/call`: one step."""
        step_mark, episode = _step_mark(ctx), self._episode_of(ctx)
        try:
            result = await self._host.play(
                episode,
                params.name,
                params.arguments or {},
                key=step_mark.key if step_mark else f"{_PROCESS}/{next(_calls)}",
                step=step_mark.step if step_mark else None,
            )
        except LudusError as error:
            return refused(error, ran_here=self._ran_here(ctx))
        return observation(result, params.name, self._host.store.output_of(episode, params.name))

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """Handle `tools/list`: this episode's tools."""
        episode = self._episode_of(ctx)
        try:
            view = await self._host.view(episode)
        except EpisodeNotFound:
            return types.ListToolsResult(tools=[])
        output_of = partial(self._host.store.output_of, episode)
        return types.ListToolsResult(tools=tool_list(view.tools, output_of))

    async def _list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        """Handle `prompts/list`: the only prompt."""
        description = "What this episode asks of you."
        return types.ListPromptsResult(prompts=[types.Prompt(name=PROMPT_NAME, title="Task", description=description)])

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """Handle `prompts/get`: the prompt that the agent gets at the beginning."""
        if params.name != PROMPT_NAME:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name[:200]}; there is only {PROMPT_NAME!r}")
        try:
            view = await self._host.view(self._episode_of(ctx))
        except EpisodeNotFound as error:
            raise mcp_error(EpisodeNotFound(unknown_episode(self._ran_here(ctx)), **error.data)) from None
        return types.GetPromptResult(messages=prompt_messages(view.prompt))


def _claims(ctx: Context) -> Claims:
    claims: Claims = cast(Request, ctx.request).scope[_CLAIMS]
    return claims


def _step_mark(ctx: Context) -> StepMark | None:
    meta = ctx.params.get("_meta") if ctx.params else None
    mark = meta.get(STEP_META_KEY) if meta else None
    if mark is None:
        return None
    try:
        return StepMark.model_validate(mark)
    except ValidationError as error:
        errors = first_errors(error, StepMark.model_validate, mark)
        fields = ", ".join(".".join(map(str, item["loc"]))[:100] or STEP_META_KEY for item in errors)
        raise MCPError(types.INVALID_PARAMS, f"_meta[{STEP_META_KEY!r}] must be {{step?, key}}: see {fields}") from None
