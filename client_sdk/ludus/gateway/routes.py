"""The addresses of the gateway: which wire a request speaks, what it asks for, and the key that it names.

    POST /KEY/v1/chat/completions                       a call, over chat completions
    POST /KEY/v1/responses                              a call, over responses
    POST /KEY/v1/messages                               a call, over Anthropic's messages
    POST /KEY/v1beta/models/NAME:generateContent        a call, over Google's generateContent; or :streamGenerateContent
    POST …/responses/input_tokens, …/messages/count_tokens, …/models/NAME:countTokens
    GET  /KEY/v1/models, /KEY/v1/models/NAME            the models, in the form of the client's provider
    GET  /KEY/v1/responses/ID                           a stored response
    GET or HEAD /KEY                                    200; programs ask this to see whether an address answers

Without `KEY` in the path, the API key names the episode.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final, Literal, NamedTuple

from aiohttp import web

from ludus.gateway.wires import anthropic, chat, google, responses
from ludus.gateway.wires.requests import Refusal

MODEL: Final = "policy"
"""The name under which the gateway lists its model. A harness may give any name."""
CALLS: Final[Mapping[str, ModuleType]] = {"chat/completions": chat, "responses": responses, "messages": anthropic}
"""The addresses of calls below `/v1/`."""
_COUNTS: Final[Mapping[str, ModuleType]] = {"responses/input_tokens": responses, "messages/count_tokens": anthropic}
_VERSION: Final = re.compile(r"^(?P<key>.*?)/(?P<version>v1|v1beta|v1alpha)(?:/(?P<rest>.*))?$")
_GOOGLE_METHOD: Final = re.compile(r"^models/(?P<model>[^:]+):(?P<method>\w+)$")

Asked = Literal["call", "count", "models", "response", "root", "unknown"]
"""What a request asks for."""


class Route(NamedTuple):
    """The address of a request, taken apart."""

    key: str
    """The key in the path; empty if there is none."""
    wire: ModuleType
    """The wire whose form the answer has, also that of an error."""
    asked: Asked
    name: str = ""
    """The name of a model or the id of a response; for `unknown`, the path without the key."""
    stream: bool = False
    """Whether the address itself asks for a streamed reply."""


def find_route(http: web.BaseRequest) -> Route:
    """Return the route of a request."""
    path, read = http.path, http.method in ("GET", "HEAD")
    match = _VERSION.match(path)
    if match is None:
        key, _, rest = path.strip("/").partition("/")
        return Route(key, chat, "root" if read and not rest else "unknown", rest)
    key, rest = match["key"].strip("/"), (match["rest"] or "").strip("/")
    if read and not rest:
        return Route(key, chat, "root")
    if match["version"] != "v1":
        return _google_route(http, key, rest)
    if http.method == "POST" and (wire := CALLS.get(rest)) is not None:
        return Route(key, wire, "call")
    if http.method == "POST" and (wire := _COUNTS.get(rest)) is not None:
        return Route(key, wire, "count")
    of_anthropic = "anthropic-version" in http.headers or rest.startswith("messages")
    kind, _, name = rest.partition("/")
    if read and kind == "models":
        return Route(key, anthropic if of_anthropic else chat, "models", name)
    if read and kind == "responses" and name:
        return Route(key, responses, "response", name)
    return Route(key, anthropic if of_anthropic else CALLS.get(kind, chat), "unknown", rest)


def _google_route(http: web.BaseRequest, key: str, rest: str) -> Route:
    match = _GOOGLE_METHOD.match(rest)
    if http.method == "POST" and match is not None:
        if match["method"] in ("generateContent", "streamGenerateContent"):
            return Route(key, google, "call", match["model"], match["method"] == "streamGenerateContent")
        if match["method"] == "countTokens":
            return Route(key, google, "count", match["model"])
    kind, _, name = rest.partition("/")
    if http.method in ("GET", "HEAD") and kind == "models":
        return Route(key, google, "models", name)
    return Route(key, google, "unknown", rest)


def key_of(http: web.BaseRequest, route: Route) -> str:
    """Return the key of a request: that of its path, or its API key."""
    headers = http.headers
    return (
        route.key
        or headers.get("x-api-key")
        or headers.get("x-goog-api-key")
        or headers.get("Authorization", "").removeprefix("Bearer ").strip()
        or http.query.get("key", "")
    )


def unknown(http: web.BaseRequest, route: Route) -> Refusal:
    """Return the refusal of an address that the gateway does not have. It does not repeat the key."""
    shown = route.name[-60:]
    if _VERSION.match(http.path) is None and shown.strip("/") in (*CALLS, *_COUNTS, "models"):
        return Refusal("path", f"the base URL lacks /v1: the address of {shown!r} is BASE_URL/v1/{shown.strip('/')}")
    if shown.startswith(("v1/", "v1beta/")):
        return Refusal("path", f"the base URL has its version twice: leave one out before {shown!r}")
    calls = ", ".join(CALLS)
    return Refusal(
        "path",
        f"the gateway has no {http.method} {shown!r}; there are POST {calls}, models/NAME:generateContent (below "
        "/v1beta/), GET models, GET responses/ID",
    )


def models(route: Route) -> dict[str, Any]:
    """Return the list of models, or one model, in the form of the client's provider."""
    name = route.name or MODEL
    if route.wire is google:
        model: dict[str, Any] = {
            "name": f"models/{name}", "displayName": name, "version": "1",
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        }  # fmt: skip
        return model if route.name else {"models": [model]}
    if route.wire is anthropic:
        model = {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
        listed = {"data": [model], "has_more": False, "first_id": name, "last_id": name}
        return model if route.name else listed
    model = {"id": name, "object": "model", "created": 0, "owned_by": "ludus"}
    return model if route.name else {"object": "list", "data": [model]}
