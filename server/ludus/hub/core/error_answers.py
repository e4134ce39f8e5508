"""Errors as the API of a hub sends them."""

from __future__ import annotations

import re
from typing import Final

from fastapi.responses import JSONResponse
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ludus.protocol.errors import LudusError, to_wire
from ludus.registry.types.errors import KINDS
from ludus.server.web.guard import error_headers
from ludus.server.web.http_answers import REASON

REASON_LENGTH: Final = 500
"""The most characters of a message in the status line; proxies accept a few thousand bytes."""

_UPLOADS: Final = "/index/upload"
_DOWNLOADS: Final = "/files/"
_PROBLEM: Final = b"application/problem+json"
_UNSAFE: Final = re.compile(r"[^\x21-\x7e]+")


class ErrorResponse(JSONResponse):
    """An error as an answer.

    twine and pip show the reason phrase of the status line only, so the answer to an upload and to the download of a
    wheel has the message there, too. uv shows the detail of a problem (RFC 9457).

    Args:
        error: the error.
    """

    def __init__(self, error: LudusError) -> None:
        thing = to_wire(error).model_dump(mode="json", by_alias=True)
        kinds = (kind.__name__ for kind in type(error).__mro__)
        thing["data"]["kind"] = next((kind for kind in kinds if kind in KINDS), type(error).__name__)
        super().__init__({"error": thing, "detail": error.message}, error.http_status, headers=error_headers(error))
        self._reason = reason_phrase(error.message)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        is_download = scope["path"].startswith(_DOWNLOADS)

        async def with_reason(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, REASON: self._reason}
                if is_download:
                    headers = [field for field in message["headers"] if field[0] != b"content-type"]
                    message["headers"] = [*headers, (b"content-type", _PROBLEM)]
            await send(message)

        await super().__call__(
            scope, receive, with_reason if is_download or scope["path"].startswith(_UPLOADS) else send
        )


def error_response(error: LudusError) -> Response:
    """Return an error as the API sends it; `data.kind` names its class."""
    return ErrorResponse(error)


def reason_phrase(message: str) -> bytes:
    """Return a message as a status line can hold it: one line of printable ASCII, shortened."""
    # A line break here would let the name of an uploaded file add header fields to the answer.
    text = _UNSAFE.sub(lambda found: " " if found[0].isspace() else "?", message).strip()
    return (text if len(text) <= REASON_LENGTH else f"{text[: REASON_LENGTH - 3]}...").encode("ascii")
