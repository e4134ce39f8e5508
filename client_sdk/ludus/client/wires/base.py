"""What a wire is to the client: one coroutine that carries a typed request and returns its typed result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from ludus.protocol._model import WireModel

if TYPE_CHECKING:
    from ludus.protocol.methods import Method

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)


@dataclass(frozen=True, slots=True)
class WireCapabilities:
    """What a wire can carry, so that the client refuses the rest before asking."""

    methods: frozenset[str]
    """Full names of the extension methods that `request` accepts."""
    exactly_once: bool = True
    """Whether a request that is sent again under its key runs at most once. False on servers without keys."""


class Wire(Protocol):
    """One way to a server. Implementations own their connections, retries and translation of errors.

    `request` may be called any number of times at once. Only errors of `ludus.protocol.errors` leave it:
    those that the server answered with, or a `TransportError`. Cancelling it gives up the answer, never the request.
    """

    @property
    def name(self) -> str:
        """The word that `connect(wire=…)` knows it by."""
        ...

    @property
    def capabilities(self) -> WireCapabilities:
        """What this wire carries; known after the first request at the latest."""
        ...

    async def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Ask the server.

        Args:
            method: an entry of `ludus.protocol.METHODS`.
            params: its params, already valid.
            timeout: seconds for the whole of it, reconnecting and sending again included. None is the wire's default.

        Raises:
            Unsupported: the wire does not carry this method.
            ConnectionFailed: no connection, or one lost and not regained within the wire's bounds.
            DeadlineExceeded: no answer within `timeout`.
            ProtocolViolation: the peer answered with something that is not an answer.
            LudusError: what the server answered.
        """
        ...

    async def close(self) -> None:
        """Let go of every connection. Requests that wait get `ConnectionFailed`. Closing twice is no error."""
        ...
