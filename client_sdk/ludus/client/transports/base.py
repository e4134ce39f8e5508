"""The interface of a wire: one coroutine that sends a typed request and returns its typed result."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import ValidationError

from ludus.common.backoff import Backoff
from ludus.protocol import errors
from ludus.protocol.model import WireModel

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ludus.protocol.methods import Method
    from ludus.protocol.modules import Module

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)


@dataclass(frozen=True, slots=True)
class WireCapabilities:
    """The features of a wire, so that the client can refuse other requests without sending them."""

    methods: frozenset[str]
    """Full names of the extension methods that `request` accepts."""
    exactly_once: bool = True
    """Whether a request that is sent again under its key runs at most once. False on servers without keys."""
    joined_groups: bool = True
    """Whether clients that start under the same key get the same episodes, so that they can join a group."""
    matches: bool = True
    """Whether a start can name seats. False on wires without such a field."""
    ordered: bool = False
    """Whether requests arrive in the order in which they were made. If not, an episode sends one step at a time."""


class Wire(Protocol):
    """A connection to a server over one transport. It owns its sockets, its retries and the translation of errors.

    Any number of `request` calls may run at the same time. They raise only errors of `ludus.protocol.errors`: the
    server's own errors, or a `TransportError`. Canceling a call abandons the answer but does not withdraw the request.
    """

    @property
    def name(self) -> str:
        """The name of the wire in `connect(wire=…)`."""
        ...

    @property
    def capabilities(self) -> WireCapabilities:
        """The features of this wire; known after the first request at the latest."""
        ...

    def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> Coroutine[Any, Any, R]:
        """Send a request to the server and return its result.

        Args:
            method: an entry of `ludus.protocol.METHODS`.
            params: the method's params, already validated.
            timeout: seconds for the whole request, including reconnecting and resending. None is the wire's default.

        Raises:
            Unsupported: the wire does not carry this method.
            ConnectionFailed: there is no connection, or it was lost and reconnecting failed.
            DeadlineExceeded: there was no answer within `timeout`.
            ProtocolViolation: the server sent something that is not a valid answer.
            LudusError: the error that the server answered with.
        """
        ...

    async def modules(self) -> frozenset[Module] | None:
        """Return the modules of the standard that the server offers; None where that is unknown, so that a request
        must show it."""
        ...

    async def close(self) -> None:
        """Close all connections. Waiting requests raise `ConnectionFailed`. Closing twice is no error."""
        ...


class WireAround:
    """The base of wires that add something to another one.

    Args:
        inner: the other wire.
    """

    def __init__(self, inner: Wire) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The name of the wire."""
        return self._inner.name

    @property
    def capabilities(self) -> WireCapabilities:
        """The features of the wire."""
        return self._inner.capabilities

    async def modules(self) -> frozenset[Module] | None:
        """Return the modules that the server offers; None where that is unknown."""
        return await self._inner.modules()

    async def close(self) -> None:
        """Close all connections."""
        await self._inner.close()


def require_loop(own: asyncio.AbstractEventLoop, url: str) -> None:
    """Raise an error if the running event loop is not the one that a wire belongs to.

    Raises:
        WrongEventLoop: it is another one, for example in a thread or in a forked process.
    """
    if asyncio.get_running_loop() is not own:
        raise errors.WrongEventLoop(
            f"the client of {url} belongs to another event loop: make one client for each event loop and process with "
            "`connect(…)`, or share a `ServerAddress`, or use the blocking client (`ludus.client.sync`) from threads",
            url=url,
        )


def module_missing(module: Module, what: str) -> errors.Unsupported:
    """Return the error for a request that needs a module which the server does not offer.

    Args:
        module: the module.
        what: the method or the field that belongs to it.
    """
    return errors.Unsupported(
        f"this server does not offer the module `{module}` of the standard, to which {what} belongs; do without it, or "
        "use a server that offers the module",
        module=str(module),
    )


class Retries:
    """The retries of one request: how long to pause before the next try, and when to give up.

    The time counts from the first failure and not from the request, which may have taken minutes before its connection
    broke. It starts again after a try that reached the server and lasted longer than that.
    """

    def __init__(self, seconds: float, first: float, longest: float) -> None:
        self.give_up: float | None = None
        """The time, by the event loop's clock, after which there is no further try; None before the first failure."""
        self._seconds = seconds
        self._backoff = Backoff(first, longest)
        self._began = math.inf

    async def wait(self, at_least: float = 0.0, *, reached: bool = False) -> bool:
        """Wait for the next try. Return whether there is one before the time to give up.

        Args:
            at_least: how long to wait at the least, in seconds.
            reached: whether the try that failed had a connection to the server.
        """
        now = asyncio.get_running_loop().time()
        if self.give_up is None or (reached and now - self._began > self._seconds):
            self.give_up = now + self._seconds
        pause = max(self._backoff.next(), at_least)
        if now + pause > self.give_up:
            return False
        await asyncio.sleep(pause)
        self._began = asyncio.get_running_loop().time()
        return True


def error_of(body: Any) -> errors.LudusError:
    """Return the exception for a JSON-RPC error object; `ProtocolViolation` if the object is malformed."""
    if isinstance(body, dict):
        body = {key: value for key, value in body.items() if value is not None}
    try:
        parsed = errors.ErrorObject.model_validate(body)
    except ValidationError as problem:
        return errors.ProtocolViolation(f"the server sent a malformed error: {problem}")
    return errors.from_wire(parsed.code, parsed.message, parsed.data)
