"""Runs the environment's code and attributes its errors.

Authors raise ordinary Python exceptions. Every exception, including `SystemExit`, `GeneratorExit` and a stray
`CancelledError`, becomes `UserCodeError` here; only `ToolError` (meant for the agent) and a cancellation by the host
itself pass through. `failure` logs a `UserCodeError` under an incident id and returns the error that ends the episode.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Callable
from contextvars import ContextVar
from types import CoroutineType
from typing import Any, Final

from ludus.common.incidents import new_incident
from ludus.protocol.errors import EnvironmentFailed, EpisodeFailed, InfrastructureFailed
from ludus.sandbox import SandboxUnavailable
from ludus.server.durability.journal import CallNotWritten
from ludus.server.execution.errors import ToolError
from ludus.server.execution.threads import Threads

log = logging.getLogger("ludus.server.episodes")


_OTHER_THREAD: Final = re.compile(r"(?:same|different|another|other) (?:OS )?thread", re.IGNORECASE)
"""What SQLite, greenlet and Playwright say of an object that belongs to another thread."""


watched_causes: ContextVar[list[BaseException | str] | None] = ContextVar("watched_causes", default=None)
"""Where `failure` also notes its causes, for code of the server that plays an episode itself."""


class UserCodeError(Exception):
    """Environment code raised an exception, which is `cause`, in the part of the environment that `what` names."""

    def __init__(self, cause: BaseException, what: str | None = None) -> None:
        # Leave out the text: `__str__` and `__repr__` are the author's code too.
        super().__init__(type(cause).__name__)
        self.cause = cause
        self.what = what


async def run(workers: Threads, offload: bool, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the author's `function`: in a thread if `offload`, otherwise directly; await what it returns if awaitable.

    Raises:
        UserCodeError: it raised anything except `ToolError`.
        ToolError: it refused the agent's call.
    """
    own_task = asyncio.current_task()
    try:
        if offload:
            value = await workers.run(function, *args, **kwargs)
        else:
            value = function(*args, **kwargs)
        return await value if type(value) is CoroutineType or inspect.isawaitable(value) else value
    except ToolError:
        raise
    except BaseException as error:
        if from_host(error, own_task):
            raise
        raise UserCodeError(error) from error


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call the author's `function` directly; it must be synchronous and must not block.

    Raises:
        UserCodeError: it raised any exception.
    """
    try:
        return function(*args)
    except BaseException as error:
        raise UserCodeError(error) from error


def from_host(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether an exception comes from the host, which ends a task, rather than from the code in the task.

    Args:
        error: the exception.
        task: the task in which it was raised.
    """
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() > 0
    if isinstance(error, GeneratorExit):  # `coroutine.close()` raises it, in the task that calls `close`
        try:
            return asyncio.current_task() is not task
        except RuntimeError:
            return True
    return False


def message_of(error: BaseException, otherwise: str) -> str:
    """Return the text of an author's error, or `otherwise` if it has none or its `__str__` fails."""
    try:
        return str(error) or otherwise
    except BaseException:
        log.warning("an exception of type %s has no text: its __str__ failed", type(error).__name__)
        return otherwise


def failure(what: str, episode: str | None, environment: str, cause: BaseException | str) -> EpisodeFailed:
    """Log why environment code failed and return the error for all callers that wait for its outcome.

    The message names the exception's type but not its text, which may hold private fields; only a `SandboxUnavailable`
    says what the machine lacks, in its own words, and a `CallNotWritten` what kept the call from running.

    Args:
        what: the part of the environment that failed, as in "tool 'guess'".
        episode: the id of the episode that ends with the failure; None if there is none.
        environment: the environment's name.
        cause: the exception, or the reason as text.
    """
    incident = new_incident()
    if isinstance(cause, UserCodeError):
        what, cause = cause.what or what, cause.cause
    if (watched := watched_causes.get()) is not None:
        watched.append(cause)
    outside = isinstance(cause, InfrastructureFailed | SandboxUnavailable)
    kind: type[EpisodeFailed] = InfrastructureFailed if outside else EnvironmentFailed
    reason = cause if isinstance(cause, str) else f"it raised {type(cause).__name__}"
    if isinstance(cause, SandboxUnavailable | CallNotWritten):
        reason = cause.message
    elif isinstance(cause, Exception) and _OTHER_THREAD.search(message_of(cause, "")):
        reason += (
            ", since it used an object of another thread: an episode's `def` methods have one thread, except tools "
            "with `concurrent=True`, and its `async def` methods have the server's; make it where it is used"
        )
    log.error(
        "%s of environment %r failed in episode %s: %s (incident %s)",
        what, environment, episode, reason, incident,
        exc_info=cause if isinstance(cause, BaseException) else None,
        extra={"incident": incident, "episode": episode, "environment": environment},
    )  # fmt: skip
    ended = "the episode has ended and is unscored, and " if episode is not None else ""
    data = {} if episode is None else {"episode": episode}
    return kind(
        f"{what} of environment {environment!r} failed: {reason}; {ended}the server's log has the cause under incident "
        f"{incident}",
        incident=incident,
        endReason="infrastructure_error" if kind is InfrastructureFailed else "environment_error",
        **data,
    )
