"""What containers of both kinds ask of their engine: the removal of a container, and the raw streams of the SDK."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import Any, Final

import docker.errors

_REMOVE_SECONDS: Final = 20.0
"""How long an engine may take to notice that a container has ended."""


def remove_container(api: Any, container: str) -> None:
    """End a container and remove it, and block until it is removed. One that is gone counts as removed.

    Raises:
        docker.errors.APIError: the engine cannot remove it.
    """
    deadline = time.monotonic() + _REMOVE_SECONDS
    while True:
        try:
            api.remove_container(container, v=True, force=True)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            # Docker is removing it already (409), since it ended by itself; Podman is just noticing that it has ended.
            passing = error.status_code == 409 or "state improper" in str(error.explanation)
            if not passing or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(0.01)


def saw_memory_run_out(api: Any, container: str) -> bool:
    """Return whether the engine has reported that a container's memory ran out; it knows so after the container's end.

    Raises:
        docker.errors.DockerException, requests.exceptions.RequestException: the engine does not answer.
    """
    about = {"container": container, "event": "oom"}
    with closing(api.events(since=1, until=time.time(), filters=about)) as events:
        return any(events)


def read_buffered(stream: Any) -> bytes:
    """Return output that arrived with the head of the response: the SDK has it in a buffer above the raw socket."""
    try:
        return bytes(stream._response.raw._fp.fp.peek())
    except (AttributeError, OSError):  # no such buffer (ssh), or an empty one (TLS)
        return b""


def close_stream(stream: Any) -> None:
    """Close a stream that the SDK took over from an HTTP response, together with the response and the socket."""
    raw, response = getattr(stream, "_sock", stream), getattr(stream, "_response", None)
    for part in (response, stream, raw):
        with suppress(ValueError, OSError):  # closing one part may close another, which then raises
            if part is not None:
                part.close()
