"""The messages between a Ludus server and `ludus sandboxd`, and the frames that carry them.

How this works:

- A client opens one WebSocket for each host. Its first message is a text, `Hello`, and so is the reply, `Welcome` or
  `Refusal`. All others are binary frames.
- A frame is a header of 26 bytes (kind, flags, sequence number, acknowledged sequence number, stream) and a payload of
  at most `PIECE` bytes. `channel` numbers and repeats frames, so that each arrives once.
- A message is a JSON object and bytes (`pack`). Requests and replies are cut into frames of the same stream, of which
  the last has the flag `LAST`; an event is one frame.
- The client chooses the streams: each request has its own. A sandbox, a process and a connection to a port are known by
  the stream of the request that made them.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ludus.protocol.errors import LudusError
from ludus.protocol.messages import describe_invalid
from ludus.protocol.text import truncate
from ludus.sandbox.core.errors import (
    SandboxFailed,
    SandboxFileError,
    SandboxInputClosed,
    SandboxLimitReached,
    SandboxPortClosed,
    SandboxUnsupported,
)
from ludus.sandbox.core.model import Limits, NetworkUse, RunResult, SandboxSettings
from ludus.sandbox.core.processes import ProcessEnd

VERSION: Final = 1
"""The version of this protocol. Both sides must have the same."""
PIECE: Final = 64 * 1024
"""The most bytes of one frame's payload. An event may have the size of its JSON object more."""
MAX_FRAME: Final = PIECE + 8192
"""The most bytes of one WebSocket message."""
LAST: Final = 1
"""The flag of the last frame of a request or reply."""
BEAT_SECONDS: Final = 2.0
"""How often each side sends something, so that the other notices when it hangs."""

_HEADER: Final = struct.Struct("!BBQQQ")
_SIZE: Final = struct.Struct("!I")
_MAX_JSON: Final = 32 * 1024 * 1024


class WireError(LudusError):
    """The other side does not follow the protocol; the connection cannot be used any more."""


class HostFull(SandboxFailed):
    """The host has no room for another sandbox."""


class Kind(IntEnum):
    """The kind of a frame."""

    BEAT = 0
    """Acknowledges frames; from a host, its payload is a `Load`. It has no sequence number."""
    REQUEST = 1
    REPLY = 2
    EVENT = 3
    CANCEL = 4
    """From the client: give up the request, and end the process or connection that it made."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame."""

    kind: int
    flags: int
    sequence: int
    stream: int
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return _HEADER.size + len(self.payload)

    def encode(self, acknowledged: int) -> bytes:
        """Return the frame's bytes; `acknowledged` is the last sequence number that this side has received."""
        return _HEADER.pack(self.kind, self.flags, self.sequence, acknowledged, self.stream) + self.payload


def decode(data: bytes) -> tuple[Frame, int]:
    """Return a frame and the last sequence number that its sender has received.

    Raises:
        WireError: it is not a frame.
    """
    if len(data) < _HEADER.size:
        raise WireError(f"a frame has at least {_HEADER.size} bytes, not {len(data)}")
    kind, flags, sequence, acknowledged, stream = _HEADER.unpack_from(data)
    if kind > Kind.CANCEL or flags > LAST:
        raise WireError(f"there is no frame of kind {kind} with flags {flags}")
    return Frame(kind, flags, sequence, stream, data[_HEADER.size :]), acknowledged


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return the bytes of a message."""
    described = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((_SIZE.pack(len(described)), described, body))


def unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the JSON object and the bytes of a message.

    Raises:
        WireError: it is not a message.
    """
    if len(data) < _SIZE.size:
        raise WireError("a message begins with the size of its JSON object")
    end = _SIZE.size + _SIZE.unpack_from(data)[0]
    if end > len(data) or end > _MAX_JSON:
        raise WireError(f"a message of {len(data):,} bytes cannot have a JSON object of {end - _SIZE.size:,} bytes")
    try:
        # Not pydantic's reader: it refuses lone surrogates, which stand for the bytes of a file name that is not text.
        head = json.loads(data[_SIZE.size : end])
    except (ValueError, RecursionError):
        raise WireError("the head of a message is not JSON") from None
    if not isinstance(head, dict):
        raise WireError("the head of a message is not a JSON object")
    return head, bytes(data[end:])


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def describe_validation(error: ValidationError) -> str:
    """Return the first field of a message that is invalid, and what is wrong with it."""
    problem = error.errors(include_url=False)[0]
    location = ".".join(map(str, problem["loc"])) or "the message"
    return truncate(f"{location}: {describe_invalid(problem)}", 300)


class Hello(_Strict):
    """The first message of a connection, from the client."""

    version: int
    session: str = Field(pattern="^[0-9a-f]{32}$")
    """Known to this client only; a connection with the same one continues the session."""
    resume: bool
    """Whether the session has been used before, so that it must still exist."""
    received: int = Field(ge=0)
    """The last sequence number that the client has received."""


class Load(_Strict):
    """The number of sandboxes of a host."""

    boxes: int = Field(ge=0)
    capacity: int = Field(ge=0)


class Welcome(_Strict):
    """The host's reply to `Hello`."""

    version: int
    received: int = Field(ge=0)
    provider: str
    """The backend of the host's sandboxes."""
    grace: float
    """For how many seconds the host keeps the sandboxes of a client that is not connected."""
    load: Load


class Refusal(_Strict):
    """The host's other reply to `Hello`, and its last message to a client that does not follow the protocol."""

    refused: str
    lost: bool = False
    """Whether the session does not exist any more."""


class _Boxed(_Strict):
    box: int


class Check(_Strict):
    """Find out whether the host can create sandboxes with these settings."""

    op: Literal["check"]
    settings: SandboxSettings


class Create(_Strict):
    """Create a sandbox. The reply has the host's `Load`."""

    op: Literal["create"]
    settings: SandboxSettings


class _Command(_Boxed):
    argv: list[str] = Field(min_length=1)
    env: dict[str, str]
    cwd: str
    limits: Limits


class Run(_Command):
    """Run a command; the body is its standard input."""

    op: Literal["run"]


class Spawn(_Command):
    """Start a background process, on a terminal if there are rows and columns."""

    op: Literal["spawn"]
    terminal: tuple[int, int] | None


class ConnectPort(_Boxed):
    """Connect to a port; events carry the bytes."""

    op: Literal["connect"]
    port: int = Field(ge=1, le=65535)


class Read(_Boxed):
    """Read a file."""

    op: Literal["read"]
    path: str
    limit: int = Field(ge=0)


class Write(_Boxed):
    """Write a file, whose content is the body."""

    op: Literal["write"]
    path: str
    executable: bool


class ListDirectory(_Boxed):
    """List a directory."""

    op: Literal["list"]
    path: str


class TakeSnapshot(_Boxed):
    """Return a snapshot as the body."""

    op: Literal["snapshot"]


class Restore(_Boxed):
    """Restore the snapshot in the body."""

    op: Literal["restore"]


class Fork(_Boxed):
    """Fork a sandbox on the same host; as `Create`."""

    op: Literal["fork"]


class Close(_Boxed):
    """Close a sandbox. The reply has the host's `Load`."""

    op: Literal["close"]


class Goodbye(_Strict):
    """End the session, and with it all of its sandboxes."""

    op: Literal["goodbye"]


Request = (
    Check | Create | Run | Spawn | ConnectPort | Read | Write | ListDirectory | TakeSnapshot | Restore | Fork | Close
    | Goodbye
)  # fmt: skip
_REQUEST: Final[TypeAdapter[Request]] = TypeAdapter(Annotated[Request, Field(discriminator="op")])
OPERATIONS: Final = tuple(get_args(kind.model_fields["op"].annotation)[0] for kind in get_args(Request))
"""The names of all operations."""


def read_request(head: dict[str, Any]) -> Request:
    """Return a request.

    Raises:
        SandboxUnsupported: it is not one that this version knows.
    """
    try:
        return _REQUEST.validate_python(head)
    except ValidationError as error:
        raise SandboxUnsupported(f"sandboxd cannot read the request: {describe_validation(error)}") from None


_ERRORS: Final[dict[str, type[LudusError] | type[ValueError]]] = {
    "failed": SandboxFailed, "full": HostFull, "file": SandboxFileError, "limit": SandboxLimitReached,
    "port": SandboxPortClosed, "input": SandboxInputClosed, "unsupported": SandboxUnsupported, "value": ValueError,
}  # fmt: skip
_NAMES: Final[dict[type[Any], str]] = {kind: name for name, kind in _ERRORS.items()}


def describe_error(error: Exception) -> dict[str, Any]:
    """Return the reply that reports an error."""
    name = next((_NAMES[kind] for kind in type(error).__mro__ if kind in _NAMES), "failed")
    return {"error": name, "message": getattr(error, "message", None) or str(error)}


def raise_reported(reply: dict[str, Any]) -> None:
    """Raise the error that a reply reports, if it reports one."""
    if "error" in reply:
        raise _ERRORS.get(reply["error"], SandboxFailed)(str(reply.get("message")))


def describe_result(result: RunResult) -> tuple[dict[str, Any], bytes]:
    """Return the result of a command as a message."""
    described = asdict(result)
    stdout, stderr = described.pop("stdout"), described.pop("stderr")
    return {"result": described, "out": len(stdout)}, stdout + stderr


def read_result(head: dict[str, Any], body: bytes) -> RunResult:
    """Return the result of a command from a message."""
    try:
        described = dict(head["result"])
        described["network"] = tuple(NetworkUse(**use) for use in described["network"])
        return RunResult(stdout=body[: head["out"]], stderr=body[head["out"] :], **described)
    except (KeyError, TypeError, ValueError) as error:
        raise SandboxFailed(f"the host's reply cannot be read: {error!r}") from None


def read_end(described: dict[str, Any]) -> ProcessEnd:
    """Return how a process ended from the event `ended`."""
    return ProcessEnd(**described)
