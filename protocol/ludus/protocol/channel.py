"""The channel's frames: JSON-RPC messages to frames and back, without I/O. Both ends of the channel use it.

How this works: a frame is one WebSocket text message, and holds one JSON-RPC object or an array of them. A sender
writes each message as bytes (`request_template`, `success`, `failure`) and joins waiting messages into frames
(`frames`). A receiver splits a frame into messages (`parse_requests`, `parse_replies`) and reads the envelope of each
(`read_request`, `readable_id`, `reply_id`). Params and results are validated by the models of `ludus.protocol.methods`.
"""

from __future__ import annotations

import heapq
import json
from typing import Any, Final, TypeGuard

from pydantic_core import from_json, to_json

from ludus.protocol.bounds import SHOWN_COMPLAINTS, short
from ludus.protocol.errors import InvalidRequest, LudusError, ParseError, ProtocolViolation, to_wire
from ludus.protocol.integers import LARGEST_INTEGER
from ludus.protocol.jsonrpc import RequestId
from ludus.protocol.text import is_unicode

MAX_ID_CHARS: Final = 128
"""The longest request id. It is limited because replies repeat it."""

_ENVELOPE: Final = frozenset({"jsonrpc", "id", "method", "params"})


# ── messages to frames ──────────────────────────────────────────────────────────────────────────────────────────────


def request_template(method: str) -> bytes:
    """Return a template of requests, to be filled with `% (id, params)`: an integer and JSON as bytes."""
    return b'{"jsonrpc":"2.0","method":"%b","id":%%d,"params":%%b}' % method.encode()


def success(identifier: RequestId, result: bytes) -> bytes:
    """Return the reply to a request, with its result as JSON."""
    if type(identifier) is int:
        return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (identifier, result)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (to_json(identifier), result)


def failure(identifier: RequestId | None, error: LudusError) -> bytes:
    """Return the reply to a request that failed; `identifier` is None if the request's id could not be read."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (to_json(identifier), to_wire(error).model_dump_json().encode())


def frames(messages: list[bytes], limit: float, *, split_as_arrays: bool = False) -> list[bytes]:
    """Return the messages as frames: a single one as an object, several as arrays.

    Args:
        messages: the messages that wait, oldest first.
        limit: the bytes after which further messages go into another frame. A message that is longer than this is the
            only one in its frame.
        split_as_arrays: whether each frame is an array if there are several, as a server writes them. Otherwise a
            message that is the only one in its frame is an object, as a client writes it.
    """
    if len(messages) == 1:
        return messages
    if sum(map(len, messages)) + len(messages) < limit:
        return [b"[" + b",".join(messages) + b"]"]
    batches: list[list[bytes]] = []
    begin, size = 0, 2
    for end, message in enumerate(messages):
        if end > begin and size + len(message) > limit:
            batches.append(messages[begin:end])
            begin, size = end, 2
        size += len(message) + 1
    batches.append(messages[begin:])
    return [
        batch[0] if len(batch) == 1 and not split_as_arrays else b"[" + b",".join(batch) + b"]" for batch in batches
    ]


# ── frames to messages ──────────────────────────────────────────────────────────────────────────────────────────────


def parse_requests(text: str) -> list[Any]:
    """Return the requests of a frame, in order; `read_request` checks each.

    Raises:
        ParseError: the frame is not JSON.
        InvalidRequest: the frame is an empty array.
    """
    try:
        frame = _parse_strictly(text)
    except ValueError as error:
        raise ParseError(f"the frame is not JSON: {error}") from None
    if type(frame) is not list:
        return [frame]
    if not frame:
        raise InvalidRequest("an empty array; a batch holds at least one request")
    return frame


def parse_replies(text: str) -> list[Any]:
    """Return the replies of a frame, in order.

    Raises:
        ProtocolViolation: the frame is not JSON.
    """
    try:
        frame = from_json(text)
    except ValueError as error:
        raise ProtocolViolation(f"the server sent a frame that is not JSON: {error}") from None
    return frame if type(frame) is list else [frame]


def read_request(item: Any) -> tuple[RequestId, str, dict[str, Any]]:
    """Return the id, the method and the params of a request.

    Raises:
        InvalidRequest: the value is not a JSON-RPC request; the message says why.
    """
    if type(item) is not dict:
        raise InvalidRequest(f"a request is a JSON object, not {_json_name(item)}")
    identifier = item.get("id")
    if not _is_id(identifier):
        raise InvalidRequest(
            f"`id` must be an integer of at most {LARGEST_INTEGER} either way or a string of at most {MAX_ID_CHARS} "
            "characters"
        )
    if item.get("jsonrpc") != "2.0":
        raise InvalidRequest('`jsonrpc` must be "2.0"')
    method = item.get("method")
    if type(method) is not str:
        raise InvalidRequest("`method` must be a string")
    params = item.get("params")
    if type(params) is not dict:
        if "params" in item:
            raise InvalidRequest(f"`params` must be an object, not {_json_name(params)}")
        params = {}
    if not _ENVELOPE.issuperset(item):
        unknown = heapq.nsmallest(SHOWN_COMPLAINTS, item.keys() - _ENVELOPE)
        raise InvalidRequest(f"a request has no field {', '.join(map(short, unknown))}")
    return identifier, method, params


def readable_id(item: Any) -> RequestId | None:
    """Return the id of what may not be a request; None if it has no valid one."""
    identifier = item.get("id") if type(item) is dict else None
    return identifier if _is_id(identifier) else None


def reply_id(reply: Any) -> RequestId | None:
    """Return the id of a reply; None if it has none, so that it is unknown which request it answers."""
    identifier = reply.get("id") if type(reply) is dict else None
    return identifier if type(identifier) is int or type(identifier) is str else None


def _parse_strictly(text: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        # A lone surrogate in one request must not fail the whole batch, and the standard library accepts it.
        if "\\u" not in text:
            raise
        try:
            return json.loads(text, parse_constant=_no_constant)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _is_id(value: Any) -> TypeGuard[RequestId]:
    if type(value) is int:
        return abs(value) <= LARGEST_INTEGER
    return type(value) is str and len(value) <= MAX_ID_CHARS and is_unicode(value)


def _json_name(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    return names.get(type(value), "an array" if type(value) is list else "an object")
