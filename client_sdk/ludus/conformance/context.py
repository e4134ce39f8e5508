"""The context of a check: one wire of one server, and everything that the check opened there."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from ludus.client.policies.values import random_value
from ludus.conformance.checks import ConformanceFailure, NotApplicable
from ludus.conformance.http_probe import HttpProbe
from ludus.conformance.probes import CONTROLS, Reply, StockMcpClient
from ludus.protocol.identifiers import METHOD_PREFIX
from ludus.protocol.methods import METHODS, Method
from ludus.protocol.modules import Module

NO_TOOL: Final[tuple[str, dict[str, Any]]] = ("no such tool", {})
"""A call that uses up a step and changes nothing in any environment (CALL-4)."""

_TIDY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Target:
    """A server under test with its tokens, and the environment that is played on it."""

    url: str
    token: str | None
    other_token: str | None
    """A token of another principal."""
    limited_token: str | None
    """A token without `rewards:read` and without any test split."""
    environment: dict[str, Any]
    split: str
    controls: tuple[str, ...]
    """The control wires that answer; empty for a plain ORS server."""
    modules: frozenset[Module] | None = frozenset()
    """The modules that the server announces; None for a plain ORS server, which announces nothing."""
    plain_ors: bool = False


class CheckContext:
    """One wire of one server, as a check uses it; leaving the context closes what the check opened.

    Args:
        wire: the wire under test.
        target: the server under test.
        probe: sends the requests to the server.
        control: the control wire for requests of the extension.
        token: the trainer token; the target's token by default.
    """

    def __init__(self, wire: str, target: Target, probe: HttpProbe, control: str, token: str | None = None) -> None:
        self.wire = wire
        self.target = target
        self.probe = probe
        self.token = token if token is not None else target.token
        self.name = str(target.environment.get("name", ""))
        """The environment's name; empty until the environment is known."""
        self.place: dict[str, Any] = {"environment": self.name, "split": target.split}
        """The params that name the environment and the split."""
        self._kind = control
        self.control = CONTROLS[control](probe, self.token)
        self._ids = itertools.count(1)
        self._rng = random.Random(1)
        self._tidy: list[Callable[[], Awaitable[Any]]] = []
        self._others: list[CheckContext] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for context in self._others:
            await context.__aexit__(None, None, None)
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(_TIDY_SECONDS):
                await asyncio.gather(*(close() for close in self._tidy), return_exceptions=True)

    def at_end(self, close: Callable[[], Awaitable[Any]]) -> None:
        """Register a coroutine function that closes something when the check ends; its errors are ignored."""
        self._tidy.append(close)

    def through(self, control: str | None = None, token: str | None = None) -> CheckContext:
        """Return a context for the same server over another control wire, or with another token."""
        context = CheckContext(self.wire, self.target, self.probe, control or self._kind, token or self.token)
        self._others.append(context)
        return context

    def stock(self, path: str, *, legacy: bool = False, declares: bool = False) -> StockMcpClient:
        """Return a stock MCP client for the agent endpoint at a path."""
        return StockMcpClient(self.probe, path, "play", legacy=legacy, declares=declares)

    def offers(self, module: Module) -> bool:
        """Return whether the server announces a module."""
        return module in (self.target.modules or ())

    # ── the extension's methods ────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, method: str, /, **params: Any) -> Reply:
        """Call a method of the extension and return the reply, which may be an error."""
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": METHOD_PREFIX + method, "params": params}
        return await self.ask_raw(request)

    async def ask_raw(self, request: Mapping[str, Any]) -> Reply:
        """Send a complete request and return the reply.

        Raises:
            ConformanceFailure: there is no JSON-RPC reply, or it has another id.
        """
        method = str(request.get("method")).removeprefix(METHOD_PREFIX)
        body, status = await self.control.send(request)
        if status is not None and body is None:
            raise ConformanceFailure(f"{method} got HTTP {status} without a JSON-RPC reply")
        reply = Reply.of(body, status)
        if body.get("id") != request["id"]:
            raise ConformanceFailure(f"the reply to id {request['id']!r} of {method} has the id {body.get('id')!r}")
        self.probe.transcript.code(self.control.name, reply.code, reply.message)
        return reply

    async def must(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Call a method and return its result.

        Raises:
            ConformanceFailure: the method failed.
        """
        reply = await self.ask(method, **params)
        if reply.result is None:
            raise ConformanceFailure(f"{method} failed with {reply.code}: {reply.message}")
        return reply.result

    async def refused(self, code: int | tuple[int, ...], method: str, /, **params: Any) -> Reply:
        """Call a method that must be refused, and return the reply.

        Raises:
            ConformanceFailure: it was not refused with one of the codes, or the message is empty.
        """
        reply = await self.ask(method, **params)
        if reply.result is not None and method == "episodes/start":
            self.remember(reply.result)
        codes = (code,) if isinstance(code, int) else code
        if reply.code not in codes:
            came = "with a result" if reply.result is not None else f"with {reply.code} ({reply.message})"
            raise ConformanceFailure(
                f"{method} should be refused with {' or '.join(map(str, codes))}, but was answered {came}"
            )
        if not reply.message.strip():
            raise ConformanceFailure(f"the error for {method} has an empty message")
        return reply

    # ── episodes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def split_of(self, type: str) -> dict[str, Any]:
        """Return the first split of a type.

        Raises:
            NotApplicable: the environment has no split of this type.
        """
        for split in self.target.environment["splits"]:
            if split["type"] == type:
                return dict(split)
        raise NotApplicable(f"the environment has no {type} split")

    async def start(self, **more: Any) -> dict[str, Any]:
        """Start one episode; it is closed when the check ends."""
        return (await self.start_group(1, **more))["episodes"][0]  # type: ignore[no-any-return]

    async def start_group(self, count: int, **more: Any) -> dict[str, Any]:
        """Start a group of episodes; they are closed when the check ends."""
        result = await self.must("episodes/start", **{**self.place, "key": new_key(), "count": count, **more})
        self.remember(result)
        return result

    def remember(self, result: Mapping[str, Any]) -> None:
        """Close the episodes of a start when the check ends."""
        for started in result["episodes"]:
            self.remember_episode(started["episode"])

    def remember_episode(self, episode: str) -> None:
        """Close an episode when the check ends."""
        self.at_end(lambda: self.ask("episodes/close", episode=episode))

    async def step(self, episode: str, number: int, call: tuple[str, dict[str, Any]], key: str | None = None) -> Reply:
        """Request one step and return the reply."""
        tool, arguments = call
        params = {"episode": episode, "step": number, "tool": tool, "arguments": arguments, "key": key or new_key()}
        return await self.ask("episodes/step", **params)

    async def info(self, episode: str) -> dict[str, Any]:
        """Return the current state of an episode."""
        return (await self.must("episodes/get", episode=episode))["info"]  # type: ignore[no-any-return]

    async def count_steps(self, episode: str) -> int:
        """Return the number of steps that an episode has taken."""
        return int((await self.info(episode))["steps"])

    def some_call(self, started: Mapping[str, Any], index: int = 0) -> tuple[str, dict[str, Any]]:
        """Return a call with random valid arguments for one of the episode's tools.

        Raises:
            NotApplicable: the episode has no tools.
        """
        if not started["tools"]:
            raise NotApplicable("the environment has no tools")
        tool = started["tools"][index % len(started["tools"])]
        arguments = random_value(tool["inputSchema"], self._rng)
        return tool["name"], arguments if isinstance(arguments, dict) else {}


def read(method: str, result: Mapping[str, Any] | None) -> Any:
    """Parse a result into its type, which checks that it conforms to the schema.

    Raises:
        ConformanceFailure: the result does not conform to its schema.
    """
    entry: Method[Any, Any] = METHODS[METHOD_PREFIX + method]
    try:
        return entry.result.model_validate(result)
    except ValueError as error:
        summary = " ".join(str(error).split()[:40])
        raise ConformanceFailure(f"the result of {method} does not conform to its schema: {summary}") from None


def new_key() -> str:
    """Return an idempotency key that was never used before."""
    return uuid.uuid4().hex
