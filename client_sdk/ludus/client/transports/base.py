"""What a wire is to the client: one coroutine that carries a typed request and returns its typed result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import ValidationError

from ludus.protocol import errors
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
    ordered: bool = False
    """Whether requests arrive in the order in which they were made. Where not, an episode asks one step at a time."""


class Wire(Protocol):
    """One way to a server. Implementations own their connections, retries and translation of errors.

    `request` may be called any number of times at once. Only errors of `ludus.protocol.errors` leave it:
    those that the server answered with, or a `TransportError`. Canceling it gives up the answer, never the request.
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


def error_of(body: Any) -> errors.LudusError:
    """The exception for a JSON-RPC error object, whatever the peer put into it."""
    if isinstance(body, dict):
        body = {key: value for key, value in body.items() if value is not None}
    try:
        parsed = errors.ErrorObject.model_validate(body)
    except ValidationError as why:
        return errors.ProtocolViolation(f"the server sent a malformed error: {why}")
    return errors.from_wire(parsed.code, parsed.message, parsed.data)
