"""The one place where the environment's code is run and its faults are attributed.

Authors raise plain Python. Whatever comes out, `SystemExit` and a stray `CancelledError` included, becomes
`AuthorRaised` here; only `ToolError` (meant for the agent) and a cancellation by the host itself pass through.
`failure` turns it into the error that ends the episode, logged under an incident id.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import Callable
from typing import Any

from ludus.protocol.errors import EnvironmentFailed, EpisodeFailed, InfrastructureFailed
from ludus.server.results import ToolError
from ludus.server.workers import Threads

log = logging.getLogger("ludus.server.episodes")


class AuthorRaised(Exception):
    """Environment code raised; `cause` is what."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(repr(cause))
        self.cause = cause


async def run(workers: Threads, offload: bool, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the author's `function`: awaited if it is asynchronous, in a thread if `offload`, else right here.

    Raises:
        AuthorRaised: it raised anything but `ToolError`.
        ToolError: it said no to the agent.
    """
    try:
        if offload:
            value = await workers.run(function, *args, **kwargs)
        else:
            value = function(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value
    except ToolError:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise AuthorRaised(error) from error
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise AuthorRaised(error) from error


def failure(what: str, episode: str | None, environment: str, cause: BaseException | str) -> EpisodeFailed:
    """Log why environment code failed and return the error for everybody who waits on it.

    The message names the exception's type but not its text: text may hold private fields.

    Args:
        what: which part of the environment, as in "tool 'guess'".
        episode: the episode that is over by it; None when there was none yet.
        environment: the environment's name.
        cause: the exception, or the reason in words.
    """
    incident = secrets.token_hex(6)
    if isinstance(cause, AuthorRaised):
        cause = cause.cause
    kind: type[EpisodeFailed] = InfrastructureFailed if isinstance(cause, InfrastructureFailed) else EnvironmentFailed
    why = cause if isinstance(cause, str) else f"it raised {type(cause).__name__}"
    log.error(
        "%s of environment %r failed in episode %s: %s (incident %s)",
        what, environment, episode, why, incident,
        exc_info=cause if isinstance(cause, BaseException) else None,
        extra={"incident": incident, "episode": episode, "environment": environment},
    )  # fmt: skip
    over = "the episode is over and unscored, and " if episode is not None else ""
    data = {} if episode is None else {"episode": episode}
    return kind(
        f"{what} of environment {environment!r} failed: {why}; {over}the server's log has the cause under incident "
        f"{incident}",
        incident=incident,
        endReason="infrastructure_error" if kind is InfrastructureFailed else "environment_error",
        **data,
    )
