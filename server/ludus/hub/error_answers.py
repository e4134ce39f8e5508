"""Errors as the API of a hub sends them."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from starlette.responses import Response

from ludus.protocol.errors import LudusError, to_wire
from ludus.protocol.registry_errors import KINDS
from ludus.server.web.guard import error_headers


def error_response(error: LudusError) -> Response:
    """Return an error as the API sends it; `data.kind` names its class."""
    thing = to_wire(error).model_dump(mode="json", by_alias=True)
    kinds = (kind.__name__ for kind in type(error).__mro__)
    thing["data"]["kind"] = next((kind for kind in kinds if kind in KINDS), type(error).__name__)
    return JSONResponse({"error": thing, "detail": error.message}, error.http_status, headers=error_headers(error))
