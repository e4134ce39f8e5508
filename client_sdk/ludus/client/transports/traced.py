"""A wire that makes spans: one for each episode, and below it one for each of its requests.

The transports send the context of the current span with each request, so that the server's spans are below it.

How this works:

* A start or a fork of one episode begins the span of the episode first, and the request is its first child. A start
  of several begins a span of the group; the span of each episode begins with its first request, back-dated.
* Requests about an episode are children of its span. It ends with the answer to `episodes/close`, or with the wire.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from ludus.client.transports.base import WireAround
from ludus.protocol.episodes import CloseParams, ForkParams, ForkResult, StartParams, StartResult, StepParams
from ludus.protocol.model import WireModel

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from ludus.client.transports.base import Wire
    from ludus.protocol.methods import Method
    from ludus.telemetry.tracing import Tracing

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)

KEPT: Final = 65_536
"""The most episodes whose spans are kept: other members of a joined group close their episodes, and not this client."""


NAME_CHARS: Final = 100
"""The characters of a tool's name that a span holds. A policy may name a tool that does not exist."""


class _Waiting(NamedTuple):
    """An episode of a group that has had no request yet."""

    parent: Context
    attributes: dict[str, str | int]
    began: int


class TracedWire(WireAround):
    """A wire with spans.

    Args:
        inner: the wire.
        tracing: makes the spans.
    """

    def __init__(self, inner: Wire, tracing: Tracing) -> None:
        super().__init__(inner)
        self._tracing = tracing
        self._episodes: dict[str, Span | _Waiting] = {}
        """The spans of open episodes, by id."""

    async def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send a request and return its result; see `Wire.request`."""
        if isinstance(params, StartParams | ForkParams):
            return await self._open(params, lambda parent: self._send(method, params, timeout, parent))
        episode: str | None = getattr(params, "episode", None)
        span = self._span_of(episode) if episode is not None else None
        parent = self._tracing.within(span) if span is not None else None
        try:
            return await self._send(method, params, timeout, parent)
        finally:
            if span is not None and isinstance(params, CloseParams):
                self._episodes.pop(params.episode, None)
                span.end()

    @contextmanager
    def within(self, episode: str) -> Iterator[None]:
        """Make the span of an episode the current one for the block."""
        span = self._span_of(episode)
        if span is None:
            yield
            return
        with self._tracing.using(self._tracing.within(span)):
            yield

    async def close(self) -> None:
        """Close all connections, and end the spans of episodes that are still open."""
        await super().close()
        for span in self._episodes.values():
            if not isinstance(span, _Waiting):
                span.end()
        self._episodes.clear()

    async def _send(self, method: Method[P, R], params: P, timeout: float | None, parent: Context | None) -> R:
        attributes: dict[str, str | int] = {"ludus.wire": self._inner.name, **_attributes(params)}
        with self._tracing.span(method.name, attributes, kind="CLIENT", parent=parent):
            return await self._inner.request(method, params, timeout=timeout)

    async def _open(self, params: StartParams | ForkParams, send: Callable[[Context], Awaitable[R]]) -> R:
        """Begin the span of an episode or a group, and send the request that opens it."""
        attributes = _attributes(params)
        count = params.count if isinstance(params, StartParams) else 1
        source = self._span_of(params.episode) if isinstance(params, ForkParams) else None
        parent = self._tracing.within(source) if source is not None else None
        began = time.time_ns()
        span = self._tracing.begin("episode" if count == 1 else "group", attributes, parent=parent)
        failed = True
        try:
            result = await send(self._tracing.within(span))
            failed = False
        except BaseException as error:
            self._tracing.note_error(span, error)
            raise
        finally:
            if count > 1 or failed:
                span.end()
        opened = (result.episode,) if isinstance(result, ForkResult) else cast(StartResult, result).episodes
        for started in opened:
            if count == 1:
                self._keep(started.episode, span)
            else:
                self._episodes[started.episode] = _Waiting(self._tracing.within(span), attributes, began)
        while len(self._episodes) > KEPT:
            oldest = self._episodes.pop(next(iter(self._episodes)))
            if not isinstance(oldest, _Waiting):
                oldest.end()
        return result

    def _keep(self, episode: str, span: Span) -> None:
        span.set_attribute("ludus.episode", episode)
        self._episodes[episode] = span

    def _span_of(self, episode: str) -> Span | None:
        """Return the span of an episode, which begins now if it has not begun; None for an unknown one."""
        waiting = self._episodes.get(episode)
        if not isinstance(waiting, _Waiting):
            return waiting
        span = self._tracing.begin("episode", waiting.attributes, parent=waiting.parent, began=waiting.began)
        self._keep(episode, span)
        return span


def _attributes(params: WireModel) -> dict[str, str | int]:
    """Return what a span says of a request: names, numbers and ids."""
    attributes: dict[str, str | int] = {}
    for name in ("environment", "split", "episode", "group"):
        value = getattr(params, name, None)
        if isinstance(value, str):
            attributes[f"ludus.{name}"] = value
    if isinstance(params, StepParams):
        attributes["ludus.tool"] = params.tool[:NAME_CHARS]
        attributes["ludus.step"] = params.step
    return attributes
