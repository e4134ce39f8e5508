"""One HTTP request of ORS: its head and body, its errors, and its replies.

How this works:

1. `OrsRoute` makes an `OrsRequest` of the ASGI scope, and passes it to a handler.
2. The handler checks the credential (`OrsServer.principal`), reads the body (`OrsRequest.body`) and validates it
   (`parse_body`, `parse_create`, `parse_call`). Validation errors have the form of FastAPI, as in those servers.
3. The handler replies once, with JSON or with server-sent events, or raises `HttpError` or a `LudusError`, which
   `OrsRequest.refuse` sends as `{"detail": …}`.

This is plain ASGI, because these routes are a hot path.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, from_json, to_json, to_jsonable_python

from ludus.protocol.bounds import TooComplex, first_errors, footprint, short
from ludus.protocol.errors import (
    CapacityError,
    EnvironmentNotFound,
    EpisodeFailed,
    EpisodeNotFound,
    InvalidParams,
    LudusError,
    ShuttingDown,
    SplitNotFound,
    TaskNotFound,
    Unauthenticated,
    Unsupported,
    to_wire,
)
from ludus.protocol.identifiers import ORS_EXTENSION_HEADER
from ludus.protocol.integers import Whole
from ludus.protocol.text import truncate

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

SSE_HEADERS: Final = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"content-type", b"text/event-stream; charset=utf-8"),
)
"""The headers that both published servers send with events."""

_KEEP_ALIVE: Final = (b"connection", b"keep-alive")

_EXTENSION: Final = ORS_EXTENSION_HEADER.lower().encode()
_JSON: Final = (b"content-type", b"application/json")

NOT_FOUND: Final = "Active environment not found"
"""The published servers' text for an unknown session."""

_SHOWN_VALUES: Final = 1024
"""The most values of an input that an error repeats whole; a larger input is shortened."""

BodyT = TypeVar("BodyT", bound=BaseModel)


class HttpError(Exception):
    """An error answer with its HTTP status, in ORS's form: `{"detail": …}`."""

    def __init__(
        self,
        status: int,
        detail: str | Sequence[Mapping[str, Any]],
        headers: Mapping[str, str] | None = None,
        error: LudusError | None = None,
    ) -> None:
        super().__init__(f"{status}: {detail}")
        self.error = error
        """The runtime's error that this answer reports, if there is one."""
        self.status = status
        self.detail = detail
        self.headers = headers or {}


class Disconnected(Exception):
    """The client disconnected before its request was complete."""


def http_error(error: LudusError) -> HttpError:
    """Return an error of the runtime in ORS's form."""
    status, detail, headers = _status_and_text(error)
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    return HttpError(status, detail, headers, error)


def _status_and_text(error: LudusError) -> tuple[int, str, dict[str, str]]:
    match error:
        case SplitNotFound():
            return 400, "Invalid split", {}
        case TaskNotFound():
            return 400, "Invalid index" if "index" in error.data else f"Unknown task: {error.message}", {}
        case EnvironmentNotFound():
            return 404, f"unknown environment {error.data.get('environment', '')!r}", {}
        case EpisodeNotFound():
            return 404, NOT_FOUND, {}
        case Unauthenticated():
            return 401, error.message, {"WWW-Authenticate": "Bearer"}
        case EpisodeFailed():
            return 500, f"{type(error).__name__}: {error.message}", {}
        case CapacityError():
            return 429, error.message, {"Retry-After": "1"}
        case ShuttingDown():
            return 503, error.message, {"Retry-After": "2"}
        case InvalidParams() | Unsupported():
            return 400, error.message, {}
        case _:
            return error.http_status, error.message, {}


class OrsRequest:
    """A request and its connection."""

    __slots__ = ("_body_bytes", "_headers", "_receive", "environment", "scope", "send", "started")

    def __init__(
        self, scope: Mapping[str, Any], receive: Receive, send: Send, environment: str, body_bytes: int
    ) -> None:
        self.scope = scope
        self.send = send
        self.environment = environment
        """The published name of the environment in the path; empty if the path has none."""
        self.started = False
        """Whether the head of the answer has been sent."""
        self._receive = receive
        self._body_bytes = body_bytes
        self._headers: dict[bytes, bytes] = dict(scope["headers"])

    def header(self, name: bytes) -> str:
        """Return the stripped value of a header by its lower-case name; empty when it is absent."""
        value = self._headers.get(name)
        return value.decode("latin-1").strip() if value else ""

    def credentials(self) -> frozenset[str]:
        """Return the parts of the request's headers that are, or may be, credentials."""
        authorization = self.header(b"authorization")
        parts = (authorization, authorization.partition(" ")[2].strip(), self.header(b"x-api-key"))
        return frozenset(part for part in parts if part)

    @property
    def extended(self) -> bool:
        """Whether the client knows the Ludus extension of ORS."""
        return bool(self.header(_EXTENSION))

    async def body(self) -> bytes:
        """Return the request's body.

        Raises:
            HttpError: 413, the body is longer than the server accepts.
            Disconnected: the client disconnected before the body was complete.
        """
        limit = self._body_bytes
        message = await self._receive()
        if message["type"] != "http.request":
            raise Disconnected
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            if len(body) > limit:
                raise _too_large(limit)
            return body
        declared = self.header(b"content-length")
        if declared.isascii() and declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        parts, size = [body], len(body)
        while message.get("more_body"):
            message = await self._receive()
            if message["type"] != "http.request":
                raise Disconnected
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
        return b"".join(parts)

    async def disconnected(self) -> None:
        """Wait until the client disconnects. Call this only after the body has been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def json(self, body: bytes, status: int = 200, headers: RawHeaders | None = None) -> None:
        """Answer with a JSON text."""
        head = [_JSON, (b"content-length", b"%d" % len(body))]
        if headers:
            head += headers
        self.started = True
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})

    async def events(self, events: bytes) -> None:
        """Answer with a complete series of server-sent events."""
        self.started = True
        head = self._events_head()
        head.append((b"content-length", b"%d" % len(events)))
        await self.send({"type": "http.response.start", "status": 200, "headers": head})
        await self.send({"type": "http.response.body", "body": events})

    async def begin_events(self, events: bytes) -> None:
        """Begin an answer of server-sent events; the caller sends further ones with `send`."""
        self.started = True
        await self.send({"type": "http.response.start", "status": 200, "headers": self._events_head()})
        await self.send({"type": "http.response.body", "body": events, "more_body": True})

    def _events_head(self) -> RawHeaders:
        """Return the headers of events. The HTTP server itself adds `Connection: close` if it applies."""
        connection = self.header(b"connection")
        if self.scope.get("http_version") == "1.0" or (connection and "close" in connection.lower()):
            return list(SSE_HEADERS)
        return [*SSE_HEADERS, _KEEP_ALIVE]

    async def refuse(self, error: HttpError) -> None:
        """Answer with an error, unless an answer has begun."""
        if self.started:
            return
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
        if error.status == 413:
            # The rest of the body is still arriving, so the connection cannot be used for another request.
            headers.append((b"connection", b"close"))
        answer: dict[str, Any] = {"detail": error.detail}
        if error.error is not None and self.extended:
            answer["ludus"] = to_wire(error.error).model_dump(mode="json")
        await self.json(to_json(answer, inf_nan_mode="constants"), error.status, headers)


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"the request's body is larger than {limit} bytes; send less")


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class SplitBody(_RequestBody):
    """The body of `/tasks` and `/num_tasks`."""

    split: str


class TaskBody(_RequestBody):
    """The body of `/task`. A negative index counts from the end."""

    split: str
    index: int


class NamedTaskBody(_RequestBody):
    """The body of `/task` in the Ludus extension: a task by its id, which ORS itself cannot request."""

    split: str
    task: str = Field(min_length=1, max_length=200)


class TaskRangeBody(_RequestBody):
    """The body of `/task_range`: a Python slice of a split."""

    split: str
    start: int | None = None
    stop: int | None = None


class CreateBody(_RequestBody):
    """The body of `/create`. `seed` is Ludus's extension; the published servers know the other fields."""

    env_name: str | None = None
    task_spec: dict[str, Any] | None = None
    split: str | None = None
    index: int | None = None
    secrets: dict[str, str] | None = Field(default=None, repr=False)
    toolset_name: str | None = None
    seed: Whole | None = None

    @model_validator(mode="after")
    def _one_way_to_a_task(self) -> Self:
        by_index = self.split is not None and self.index is not None
        if (self.task_spec is not None) == by_index or (self.split is None) != (self.index is None):
            raise ValueError("Provide either task_spec or both split and index, not both/neither")
        return self


class CallBody(_RequestBody):
    """The body of `/call`."""

    name: str
    input: dict[str, Any]
    task_id: str | None = None


class BlockBody(BaseModel):
    """One block of a candidate's message. `type` decides which fields are used."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["text", "image", "reasoning", "tool_call", "tool_result"]
    text: str = ""
    data: str = ""
    mimeType: str = "image/png"
    name: str = ""
    input: Any = None
    blocks: list[BlockBody] = Field(default_factory=list)
    is_error: bool = False


class MessageBody(BaseModel):
    """One message of a candidate."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "user", "assistant"]
    blocks: list[BlockBody]


class CandidateBody(_RequestBody):
    """One candidate of `/score_group`."""

    messages: list[MessageBody]
    metadata: dict[str, Any] | None = None


class ScoreGroupBody(_RequestBody):
    """The body of `/score_group`."""

    candidates: list[CandidateBody]
    task_id: str | None = None


def parse_body(model: type[BodyT], body: bytes) -> BodyT:
    """Return a body as an instance of `model`.

    Raises:
        HttpError: 422 with FastAPI's list of errors, or 400 for a body that is not UTF-8.
    """
    value = parse_json(body)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise HttpError(422, _details(first_errors(error, model.model_validate, value), value)) from None


def parse_create(body: bytes) -> CreateBody:
    """Return the body of `/create`. The most common form, a task by its index, is checked without pydantic."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError:
        value = None
    if type(value) is dict and len(value) == 3:
        name, split, index = value.get("env_name"), value.get("split"), value.get("index")
        if type(name) is str and type(split) is str and type(index) is int:
            return CreateBody.model_construct(env_name=name, split=split, index=index)
    return parse_body(CreateBody, body)


def parse_call(body: bytes) -> tuple[str, dict[str, Any], str | None]:
    """Return `name`, `input` and `task_id` of a `/call`. Valid bodies skip pydantic, because this is the hot path."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError:
        value = None
    if type(value) is dict:
        name = value.get("name")
        arguments = value.get("input")
        task_id = value.get("task_id")
        if (
            type(name) is str
            and type(arguments) is dict
            and (task_id is None or type(task_id) is str)
            and len(value) == 2 + ("task_id" in value)
        ):
            return name, arguments, task_id
    call = parse_body(CallBody, body)
    return call.name, call.input, call.task_id


def parse_json(body: bytes) -> Any:
    """Return the JSON value of a body.

    Raises:
        HttpError: 400 or 422 in FastAPI's form, the body is missing or is not JSON.
    """
    if not body:
        raise HttpError(422, [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}])
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_no_constant)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise _json_invalid(error.pos, error.msg) from None
    except UnicodeEncodeError:
        raise _json_invalid(0, "a lone surrogate is not a character") from None
    except (ValueError, RecursionError):
        raise HttpError(400, "There was an error parsing the body") from None
    return value


def parse_secrets_header(value: str) -> dict[str, str]:
    """Return the secrets in `X-Secrets`: base64 of a JSON object, each value a string or `{"value": string, …}`.

    Raises:
        HttpError: 400, the header has another form. The message does not repeat its value.
    """
    if not value:
        return {}
    try:
        parsed = json.loads(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise HttpError(400, "X-Secrets must be base64 of a JSON object") from None
    if not isinstance(parsed, dict):
        raise HttpError(400, "X-Secrets must be base64 of a JSON object")
    secrets: dict[str, str] = {}
    for name, entry in parsed.items():
        secret = entry.get("value") if isinstance(entry, dict) else entry
        if not isinstance(secret, str):
            raise HttpError(400, f'X-Secrets: {name[:64]!r} must be a string or {{"value": string}}')
        secrets[name] = secret
    return secrets


def _json_invalid(position: int, cause: str) -> HttpError:
    detail = {
        "type": "json_invalid",
        "loc": ["body", position],
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": cause},
    }
    return HttpError(422, [detail])


def _no_constant(name: str) -> None:
    raise json.JSONDecodeError(f"{name} is not JSON", name, 0)


def _details(errors: Sequence[ErrorDetails], value: Any) -> list[Mapping[str, Any]]:
    details: list[Mapping[str, Any]] = []
    for item in errors:
        location = item["loc"]
        detail: dict[str, Any] = {"type": item["type"], "loc": ["body", *location], "msg": item["msg"]}
        if "secrets" not in location:
            detail["input"] = _shown(_at(value, location[:-1] if item["type"] == "missing" else location))
        if item["type"] == "value_error":
            detail["ctx"] = {"error": {}}
        details.append(detail)
    return details


def _at(value: Any, location: tuple[int | str, ...]) -> Any:
    for step in location:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return value
    return value


def _shown(value: Any) -> Any:
    """Return the input with secrets masked, and shortened if it is too long to send back."""
    if isinstance(value, dict) and "secrets" in value:
        value = {**value, "secrets": "**********"}
    try:
        footprint({"": value}, _SHOWN_VALUES)
    except TooComplex:
        return short(value, 2048)
    text = json.dumps(value)
    return to_jsonable_python(value, inf_nan_mode="constants") if len(text) <= 2048 else truncate(text, 2048)
