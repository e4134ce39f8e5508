"""JSON-RPC 2.0 as the channel speaks it: one object or a batch (array) of objects in each WebSocket text message."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ludus.protocol.errors import ErrorObject
from ludus.protocol.integers import Integer
from ludus.protocol.model import WireModel

RequestId = Integer | str


class Request(WireModel):
    """A call of one method. Notifications do not exist on the channel."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    method: str
    params: dict[str, Any] = Field(default_factory=dict)


class Success(WireModel):
    """The answer to a request."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    result: dict[str, Any]


class Failure(WireModel):
    """The error of a request; `id` is null if the request's own could not be read."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId | None
    error: ErrorObject
