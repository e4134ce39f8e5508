"""Every error that Ludus raises or sends, in one tree.

    LudusError
    ├── RequestError                 the caller's fault; the same request will fail again
    │   ├── ParseError               -32700  not JSON, or not UTF-8
    │   ├── InvalidRequest           -32600  JSON, but not a request
    │   ├── MethodNotFound           -32601
    │   ├── InvalidParams            -32602  wrong types, missing or unknown fields
    │   ├── Unauthenticated             4010  no token, or one that is unknown or expired
    │   ├── CapabilityRefused           4011  a play capability that is forged, expired or revoked
    │   ├── Forbidden                   4030  a token without the scope
    │   ├── NotFound                    4040
    │   │   ├── EnvironmentNotFound     4041
    │   │   ├── SplitNotFound           4042
    │   │   ├── TaskNotFound            4043
    │   │   ├── EpisodeNotFound         4044
    │   │   ├── GroupNotFound           4045
    │   │   ├── WorldNotFound           4046
    │   │   └── WorldVersionNotFound    4047
    │   ├── Conflict                    4090
    │   │   ├── StepConflict            4091  a step number that skips ahead, or repeats without its key
    │   │   ├── KeyConflict             4092  an idempotency key used before for something else
    │   │   ├── EpisodeEnded            4093  a call after the end
    │   │   ├── WorldBusy               4094  an episode plays in that world
    │   │   └── WorldMismatch           4095  that world belongs to other tasks
    │   ├── PayloadTooLarge             4130
    │   └── Unsupported                 4220  this environment cannot do that (seed, fork, group score)
    ├── CapacityError                   4290  a limit of the server; `retry_after` says when to come back
    ├── EpisodeFailed                   5000  the episode has ended, unscored
    │   ├── EnvironmentFailed           5001  the environment's own code broke; `incident` is in the server's log
    │   └── InfrastructureFailed        5002  something below the environment broke
    ├── ServerError
    │   ├── InternalError            -32603  a fault of the server; `incident` is in its log
    │   └── ShuttingDown                5030
    ├── TransportError                        raised by clients only, never sent
    │   ├── ConnectionFailed                  no connection, or one lost beyond repair
    │   ├── DeadlineExceeded                  no answer in time
    │   └── ProtocolViolation                 the peer sent what the protocol forbids
    ├── WrongEventLoop                        raised by clients only: a client used in a second event loop
    ├── PolicyFailed                          raised by clients only: the policy's own code broke
    ├── PeerNotUsable                         raised by adapters only: a trainer of others is missing, or untested
    ├── EveryAttemptFailed                    raised by clients only: all attempts failed alike, so a run was stopped
    └── AuthoringError                        raised at startup only: a mistake in an environment class

Codes lie outside JSON-RPC's reserved range (-32768..-32000), except the five that JSON-RPC itself defines.
All of them survive pickling, and travel through exactly two functions: `to_wire` and `from_wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from ludus.protocol.integers import Integer
from ludus.protocol.model import WireModel
from ludus.protocol.text import replace_surrogates

__all__ = [
    "AuthoringError",
    "CapabilityRefused",
    "CapacityError",
    "Conflict",
    "ConnectionFailed",
    "DeadlineExceeded",
    "EnvironmentFailed",
    "EnvironmentNotFound",
    "EpisodeFailed",
    "EveryAttemptFailed",
    "Forbidden",
    "InfrastructureFailed",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "LudusError",
    "MethodNotFound",
    "NotFound",
    "ParseError",
    "PayloadTooLarge",
    "PeerNotUsable",
    "ProtocolViolation",
    "RequestError",
    "ServerError",
    "ShuttingDown",
    "SplitNotFound",
    "TransportError",
    "Unauthenticated",
    "Unsupported",
    "from_wire",
    "to_wire",
]


class ErrorObject(WireModel):
    """JSON-RPC's error object, with `data` typed."""

    code: Integer
    message: str
    data: dict[str, Any] = Field(default_factory=dict)


class LudusError(Exception):
    """The root. `message` says what happened, to which input, and what to do.

    Attributes:
        code: the JSON-RPC error code, 0 for errors that never travel.
        http_status: the status on wires that have one.
        data: further facts, JSON-ready (`episode`, `endReason`, `incident`, `retryAfter`, …).
    """

    code: ClassVar[int] = 0
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, /, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.data)

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same request may succeed, where that is known."""
        value = self.data.get("retryAfter")
        return float(value) if value is not None else None

    @property
    def incident(self) -> str | None:
        """The id under which the server logged the cause."""
        value = self.data.get("incident")
        return str(value) if value is not None else None


class RequestError(LudusError):
    """The caller's fault."""

    code = -32600
    http_status = 400


class ParseError(RequestError):
    """Not JSON, or not UTF-8."""

    code = -32700


class InvalidRequest(RequestError):
    """JSON, but not a request."""

    code = -32600


class MethodNotFound(RequestError):
    """A method this server does not have."""

    code = -32601
    http_status = 404


class InvalidParams(RequestError):
    """Parameters of the wrong type, missing, or unknown."""

    code = -32602


class Unauthenticated(RequestError):
    """No token, or one that is unknown or expired."""

    code = 4010
    http_status = 401


class CapabilityRefused(RequestError):
    """A play capability that is forged, expired or revoked."""

    code = 4011
    http_status = 404


class Forbidden(RequestError):
    """A token without the scope."""

    code = 4030
    http_status = 403


class NotFound(RequestError):
    """Something named does not exist."""

    code = 4040
    http_status = 404


class EnvironmentNotFound(NotFound):
    """No environment of that name."""

    code = 4041


class SplitNotFound(NotFound):
    """No split of that name."""

    code = 4042


class TaskNotFound(NotFound):
    """No such task in the split."""

    code = 4043


class EpisodeNotFound(NotFound):
    """No such episode, or one of another principal."""

    code = 4044


class GroupNotFound(NotFound):
    """No such group, or one of another principal."""

    code = 4045


class WorldNotFound(NotFound):
    """No such world, or another principal's."""

    code = 4046


class WorldVersionNotFound(NotFound):
    """No such version of the world."""

    code = 4047


class Conflict(RequestError):
    """The request contradicts what has happened already."""

    code = 4090
    http_status = 409


class StepConflict(Conflict):
    """A step number that skips ahead, or repeats without its key."""

    code = 4091


class KeyConflict(Conflict):
    """An idempotency key used before for something else."""

    code = 4092


class EpisodeEnded(Conflict):
    """A call after the end of the episode."""

    code = 4093


class WorldBusy(Conflict):
    """An episode plays in the world."""

    code = 4094


class WorldMismatch(Conflict):
    """A world of other tasks."""

    code = 4095


class PayloadTooLarge(RequestError):
    """A request larger than the server accepts."""

    code = 4130
    http_status = 413


class Unsupported(RequestError):
    """This environment cannot do what was asked."""

    code = 4220
    http_status = 422


class CapacityError(LudusError):
    """A limit of the server was reached."""

    code = 4290
    http_status = 429


class EpisodeFailed(LudusError):
    """The episode has ended, unscored."""

    code = 5000
    http_status = 500


class EnvironmentFailed(EpisodeFailed):
    """The environment's own code broke."""

    code = 5001


class InfrastructureFailed(EpisodeFailed):
    """Something below the environment broke."""

    code = 5002


class ServerError(LudusError):
    """A fault of the server."""

    code = -32603


class InternalError(ServerError):
    """An unexpected fault of the server."""

    code = -32603


class ShuttingDown(ServerError):
    """The server is unavailable."""

    code = 5030
    http_status = 503


class TransportError(LudusError):
    """Raised by clients only."""


class ConnectionFailed(TransportError):
    """No connection, or one lost beyond repair."""


class DeadlineExceeded(TransportError):
    """No answer in time."""


class ProtocolViolation(TransportError):
    """The peer sent what the protocol forbids."""


class WrongEventLoop(LudusError):
    """A client was used in another event loop than its own, or in a child process. Raised by clients only."""


class PolicyFailed(LudusError):
    """The policy's own code broke. Raised by clients only."""


class PeerNotUsable(LudusError):
    """A trainer or an evaluator is missing, or its version was not tested with its adapter. Raised by adapters only."""


class EveryAttemptFailed(LudusError):
    """Every attempt of a run failed alike, so it was stopped. Raised by clients only."""


class AuthoringError(LudusError):
    """A mistake in an environment class, found when it is registered."""


def to_wire(error: LudusError) -> ErrorObject:
    """Return the JSON-RPC error object for `error`."""
    message, data = replace_surrogates(error.message), replace_surrogates(error.data)
    return ErrorObject(code=error.code or InternalError.code, message=message, data=data)


def from_wire(code: int, message: str, data: Mapping[str, Any] | None = None) -> LudusError:
    """The exception for an error object; an unknown code becomes the root class with that code in `data`."""
    kind = _BY_CODE.get(code)
    if kind is None:
        return LudusError(message, **{**(data or {}), "code": code})
    return kind(message, **(data or {}))


def _rebuild(kind: type[LudusError], message: str, data: dict[str, Any]) -> LudusError:
    return kind(message, **data)


def _leaves(kind: type[LudusError]) -> list[type[LudusError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in _leaves(child))]


_BY_CODE = {kind.code: kind for kind in reversed(_leaves(LudusError)) if kind.code} | {
    -32600: InvalidRequest,
    -32603: InternalError,
}
