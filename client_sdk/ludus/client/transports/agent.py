"""The transport of an agent: the play URL of one episode, as any MCP client uses it.

How this works:

* `AgentWire` answers the requests of an `Episode` with what an agent may do: a step is `tools/call`, a final message is
  `submit_answer`. What an agent may not do (rewards, forks, other episodes) it refuses without asking.
* Each call carries its key, so that one which is sent again after a lost reply runs once. The server numbers the steps.
* The only sign that an episode has ended is a text in the last observation (`ludus.protocol.notices`). The wire takes
  it out of the observation, because a policy is not asked again after the end.
* The state of the episode is what this wire has seen of it. Closing is no request: the agent only stops, and
  the client that started the episode closes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from ludus.client.transports._mcp_requests import McpRequests
from ludus.client.transports._reasons import doing
from ludus.client.transports.base import WireCapabilities, error_of
from ludus.protocol import errors
from ludus.protocol.content import Content, Message, TextBlock
from ludus.protocol.episodes import (
    CloseResult,
    EpisodeInfo,
    GetEpisodeResult,
    GradeParams,
    GradeResult,
    StartedEpisode,
    StepError,
    StepParams,
    StepResult,
    ToolSpec,
)
from ludus.protocol.identifiers import STEP_META_KEY, SUBMIT_TOOL
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, EpisodeStatus, advance
from ludus.protocol.methods import CLOSE, GET_EPISODE, GRADE, STEP, Method
from ludus.protocol.model import WireModel
from ludus.protocol.modules import Module
from ludus.protocol.notices import EndNotice, read_end_notice

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)

SHOWN: Final = "the agent endpoint"
"""What messages call the endpoint, because its URL is a secret."""

INVALID_PARAMS: Final = -32602
"""The JSON-RPC error with which an endpoint answers the name of a tool that it does not have."""

PAGES: Final = 1000
"""The most pages of a list that are read."""

_CONTENT: Final[TypeAdapter[Content]] = TypeAdapter(Content)


class AgentWire:
    """The wire of one episode at its agent endpoint.

    Args:
        url: the play URL of the episode.
        timeout: seconds that a request may take; None for no limit.
        reconnect_seconds: seconds to retry a request while the server cannot be reached.
    """

    name = "agent"
    capabilities = WireCapabilities(
        methods=frozenset({STEP.name, GRADE.name, GET_EPISODE.name, CLOSE.name}), joined_groups=False, matches=False
    )

    def __init__(self, url: str, *, timeout: float | None = 300.0, reconnect_seconds: float = 30.0) -> None:
        self._requests = McpRequests(
            url, shown=SHOWN, timeout=timeout, reconnect_seconds=reconnect_seconds, connections=4
        )
        self._started: StartedEpisode | None = None
        self._environment = ""
        self._steps = 0
        self._end: EndReason | None = None
        self._incident: str | None = None

    async def modules(self) -> frozenset[Module] | None:
        """Return None: the endpoint says nothing about its server."""
        return None

    # ── the beginning ──────────────────────────────────────────────────────────────────────────────────────────────

    async def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the endpoint lists.

        Raises:
            CapabilityRefused: the URL is not one of an episode, or is no longer valid.
            LudusError: the endpoint cannot be reached, or refuses.
        """
        rows = await self._list("tools")
        try:
            return tuple(
                ToolSpec(name=row["name"], description=row.get("description") or "", input_schema=row["inputSchema"])
                for row in rows
            )
        except (KeyError, TypeError, AttributeError, ValidationError) as problem:
            raise errors.ProtocolViolation(f"{SHOWN} lists a malformed tool: {problem}") from None

    async def prompt(self) -> tuple[Message, ...]:
        """Return the messages of the endpoint's prompt; none if it has no prompt."""
        rows = await self._list("prompts")
        if not rows:
            return ()
        try:
            name = rows[0]["name"]
            result = await self._result("prompts/get", {"name": name}, headers={"Mcp-Name": name})
            return tuple(Message(role=row["role"], content=(_block(row["content"]),)) for row in result["messages"])
        except (KeyError, TypeError, ValidationError) as problem:
            raise errors.ProtocolViolation(f"{SHOWN} has a malformed prompt: {problem}") from None

    def begin(self, started: StartedEpisode, environment: str) -> None:
        """Keep what is known of the episode, for its state."""
        self._started, self._environment = started, environment

    # ── requests of the episode ────────────────────────────────────────────────────────────────────────────────────

    async def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Answer a request of the episode; see `Wire.request`.

        Raises:
            Unsupported: an agent cannot do this.
        """
        result: object
        if isinstance(params, StepParams):
            result = await self._step(params, timeout)
        elif isinstance(params, GradeParams):
            result = await self._grade(params, timeout)
        elif method.name == GET_EPISODE.name:
            result = GetEpisodeResult(info=self._info())
        elif method.name == CLOSE.name:
            result = CloseResult(info=self._info())
        else:
            raise errors.Unsupported(f"{doing(method.name)} is not possible for an agent")
        return cast(R, result)

    async def close(self) -> None:
        """Close all connections. The episode goes on until the client that started it closes it."""
        await self._requests.close()

    async def _step(self, params: StepParams, timeout: float | None) -> StepResult:
        try:
            content, is_error, end = await self._call(params.tool, params.arguments, params.key, timeout)
        except errors.InvalidParams as error:
            # The name is not that of a tool. That is a mistake of the policy, and a step like any other.
            self._steps = max(self._steps, params.step)
            unknown = StepError(code="unknown_tool", message=error.message)
            return StepResult(step=params.step, content=(TextBlock(text=error.message),), error=unknown)
        self._steps = max(self._steps, params.step)
        mistake = StepError(code="refused", message=_text(content)) if is_error and end is None else None
        return StepResult(step=params.step, content=content, error=mistake, status=self._status(), end_reason=self._end)

    async def _grade(self, params: GradeParams, timeout: float | None) -> GradeResult:
        content, is_error, end = await self._call(SUBMIT_TOOL, {"answer": params.answer}, params.key, timeout)
        if is_error and end is None:
            raise errors.InvalidParams(f"the answer was not taken: {_text(content)[:500]}")
        self._end = self._end or EndReason.SUBMITTED
        return GradeResult(reward=None, info=self._info())

    async def _call(
        self, tool: str, arguments: Mapping[str, Any], key: str, timeout: float | None
    ) -> tuple[tuple[Content, ...], bool, EndNotice | None]:
        """Call a tool once. Return the observation without its notice, whether it is an error, and the notice.

        Raises:
            EpisodeEnded: the episode had ended before.
            EpisodeFailed: the call has failed the episode.
            EpisodeNotFound: the server does not hold the episode.
            InvalidParams: there is no such tool.
        """
        if self._end is not None:
            raise errors.EpisodeEnded(f"the episode has ended ({self._end})", endReason=str(self._end))
        result = await self._result(
            "tools/call", {"name": tool, "arguments": dict(arguments)}, meta={STEP_META_KEY: {"key": key}},
            headers={"Mcp-Name": tool} if _fits_header(tool) else {}, timeout=timeout,
        )  # fmt: skip
        try:
            content = tuple(_block(block) for block in result["content"])
            is_error = bool(result.get("isError", False))
        except (KeyError, TypeError, ValidationError) as problem:
            raise errors.ProtocolViolation(f"{SHOWN} sent a malformed result of a tool: {problem}") from None
        final = content[-1] if content else None
        notice = read_end_notice(final.text) if isinstance(final, TextBlock) else None
        if notice is None:
            return content, is_error, None
        if is_error and notice.reason is None and not notice.called:
            raise errors.EpisodeNotFound(_text(content))
        self._incident = notice.incident
        if is_error and notice.reason is EndReason.ENVIRONMENT_ERROR and notice.called:
            self._end = notice.reason
            raise errors.EnvironmentFailed("the environment failed", incident=notice.incident)
        self._end = notice.reason or EndReason.COMPLETED
        if not notice.called:
            raise errors.EpisodeEnded(f"the episode has ended ({self._end})", endReason=str(self._end))
        return content[:-1] or content, is_error, notice

    # ── the endpoint ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _list(self, kind: str) -> list[Any]:
        rows: list[Any] = []
        cursor: dict[str, Any] = {}
        for _ in range(PAGES):
            result = await self._result(f"{kind}/list", cursor)
            listed = result.get(kind)
            if not isinstance(listed, list):
                raise errors.ProtocolViolation(f"{SHOWN} sent no list of {kind}")
            rows += listed
            if not result.get("nextCursor"):
                return rows
            cursor = {"cursor": result["nextCursor"]}
        raise errors.ProtocolViolation(f"{SHOWN} lists {kind} on more than {PAGES} pages")

    async def _result(
        self,
        method: str,
        fields: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Mapping[str, Any]:
        reply = await self._requests.ask(method, fields, meta=meta, headers=headers, timeout=timeout)
        if "error" in reply:
            body = reply["error"]
            if isinstance(body, dict) and body.get("code") == INVALID_PARAMS:
                raise errors.InvalidParams(str(body.get("message", "the call was refused")))
            raise error_of(body)
        result = reply["result"]
        if not isinstance(result, dict):
            raise errors.ProtocolViolation(f"{doing(method)}: the answer is malformed")
        return result

    def _info(self) -> EpisodeInfo:
        started = self._started
        if started is None:
            raise errors.InvalidParams("the episode has not begun: use `open_agent_endpoint`")
        return EpisodeInfo(
            episode=started.episode, group=started.episode, environment=self._environment, task=started.task,
            seed=started.seed, status=self._status(), end_reason=self._end, steps=self._steps, reward=None,
            incident=self._incident,
        )  # fmt: skip

    def _status(self) -> EpisodeStatus:
        if self._end is None:
            return EpisodeStatus.RUNNING
        return advance(EpisodeStatus.RUNNING, EVENT_OF_REASON[self._end])


def _block(block: Any) -> Content:
    """Return a content block; one that Ludus does not have appears as a text with its kind."""
    kind = block["type"]
    if kind in ("text", "image"):
        return _CONTENT.validate_python(
            {key: block[key] for key in ("type", "text", "data", "mimeType") if key in block}
        )
    return TextBlock(text=f"[{kind}]")


def _text(content: Sequence[Content]) -> str:
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable()
