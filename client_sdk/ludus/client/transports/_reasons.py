"""Short error messages for servers that cannot be reached or are not Ludus servers."""

from __future__ import annotations

import socket
import ssl
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from ludus.protocol import errors

_DOING: Final = {
    "environments/list": "listing the environments",
    "splits/list": "listing the splits",
    "tasks/list": "listing the tasks",
    "tasks/get": "reading a task",
    "tasks/sample": "drawing a task",
    "episodes/start": "starting an episode",
    "episodes/step": "calling a tool",
    "episodes/grade": "grading an answer",
    "episodes/rewards": "reading rewards",
    "episodes/get": "reading the state of an episode",
    "episodes/fork": "forking an episode",
    "episodes/close": "closing an episode",
    "groups/score": "scoring a group",
    "outcomes/report": "reporting outcomes",
    "worlds/list": "listing the worlds",
    "worlds/get": "reading a world",
    "worlds/branch": "branching a world",
    "worlds/reset": "resetting a world",
    "worlds/delete": "deleting a world",
    "discover": "reading the server's settings",
    "call": "calling a tool",
    "list": "reading what the agent endpoint offers",
    "get": "reading the prompt",
}
"""Descriptions of the methods for error messages, by the name after the first slash: the extension's and MCP's own."""


def doing(method: str) -> str:
    """Return a description of a request of `method` for error messages; its plain name if there is none."""
    return _DOING.get(method.partition("/")[2], method)


def reason_of(error: BaseException) -> str:
    """Return why a connection failed, without the address, which is part of the surrounding message."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, socket.gaierror) or isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no such host name"
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return "it does not speak TLS there; http:// may be right"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return str(cause) or type(cause).__name__


def unreachable(url: str, error: BaseException) -> errors.ConnectionFailed:
    """Return the error for a server that does not answer."""
    if isinstance(error, errors.LudusError):
        return errors.ConnectionFailed(f"{error.message}; all further tries failed too", url=url)
    return errors.ConnectionFailed(f"cannot reach {url}: {reason_of(error)}; is the server running?", url=url)


def refusal(
    url: str,
    status: int,
    *,
    page: bool = False,
    pause: float | None = None,
    otherwise: type[errors.TransportError] = errors.ProtocolViolation,
) -> errors.LudusError:
    """Return the error for an HTTP status that comes without an error object.

    Args:
        url: the full URL of the request.
        status: the HTTP status of the answer.
        page: whether the answer was a web page.
        pause: the seconds of its `Retry-After` header, if it has one.
        otherwise: the error class to use if there is no Ludus server at the URL.
    """
    path = urlsplit(url).path
    if status == 401:
        return errors.Unauthenticated(f"{url} refused the token, or requires one", url=url)
    if status == 413:
        return errors.PayloadTooLarge(f"the request is larger than {url} accepts", url=url)
    if status == 429:
        return errors.CapacityError(
            f"{url} takes no more requests now (HTTP 429)", url=url, retryAfter=1.0 if pause is None else pause
        )
    if status == 403:
        return errors.Forbidden(
            f"there is no Ludus server at {_base(url)}, or it does not let this client in (HTTP 403 for {path})"
            f"{_advice(url)}",
            url=url,
        )
    if status in (404, 405):
        return otherwise(f"there is no Ludus server at {_base(url)} (HTTP {status} for {path}){_advice(url)}", url=url)
    if status >= 500 and status not in (501, 505):
        return errors.ServerError(f"{url} is not ready (HTTP {status})", url=url)
    description = "a web page" if page else "something that is no answer to this request"
    return otherwise(f"{url} answered HTTP {status} with {description}; is it a Ludus server?{_advice(url)}", url=url)


def _base(url: str) -> str:
    return url.rpartition("/")[0]


def _advice(url: str) -> str:
    parts = urlsplit(_base(url))
    if not parts.path:
        return ""
    return f"; did you mean {parts.scheme}://{parts.netloc}?"
