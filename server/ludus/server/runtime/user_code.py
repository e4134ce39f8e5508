"""The one place where the environment's code is run and its faults are attributed.

Authors raise plain Python. Every exception, `SystemExit`, `GeneratorExit` and a stray `CancelledError` included,
becomes `UserCodeError` here; only `ToolError` (meant for the agent) and a cancellation by the host itself pass through.
`failure` turns it into the error that ends the episode, logged under an incident id.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import Callable
from types import CoroutineType
from typing import Any

from ludus.protocol.errors import EnvironmentFailed, EpisodeFailed, InfrastructureFailed
from ludus.server.authoring.results import ToolError
from ludus.server.runtime.threads import Threads

log = logging.getLogger("ludus.server.episodes")


class UserCodeError(Exception):
    """Environment code raised; `cause` is what."""

    def __init__(self, cause: BaseException) -> None:
        # Not its text: `__str__` and `__repr__` are the author's code too.
        super().__init__(type(cause).__name__)
        self.cause = cause


async def run(workers: Threads, offload: bool, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the author's `function`: awaited if it is asynchronous, in a thread if `offload`, else right here.

    Raises:
        UserCodeError: it raised anything but `ToolError`.
        ToolError: it said no to the agent.
    """
    return await run_in(asyncio.current_task(), workers if offload else None, function, args, kwargs)


async def run_in(
    own: asyncio.Task[Any] | None,
    workers: Threads | None,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call the author's `function` as `run` does, for a caller that knows its own task: looking it up takes time.

    Args:
        own: the task that calls.
        workers: in whose threads to call it; None to call it right here.
        function: what to call.
        args: its positional arguments.
        kwargs: its arguments by name.
    """
    try:
        if workers is not None:
            value = await workers.run(function, *args, **kwargs)
        else:
            value = function(*args, **kwargs)
        return await value if type(value) is CoroutineType or inspect.isawaitable(value) else value
    except ToolError:
        raise
    except BaseException as error:
        if from_host(error, own):
            raise
        raise UserCodeError(error) from error


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call the author's `function` right here; one that neither waits nor blocks.

    Raises:
        UserCodeError: it raised anything.
    """
    try:
        return function(*args)
    except BaseException as error:
        raise UserCodeError(error) from error


def from_host(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether the host itself ends a task by an exception, rather than the code that runs in it.

    Args:
        error: what was raised.
        task: the task in which it was.
    """
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() > 0
    if isinstance(error, GeneratorExit):  # closing a coroutine raises it inside, in the task that closes it
        try:
            return asyncio.current_task() is not task
        except RuntimeError:
            return True
    return False


def message_of(error: BaseException, otherwise: str) -> str:
    """Return the text of an error of the author's, or other words where it has none or cannot say it."""
    try:
        return str(error) or otherwise
    except BaseException:
        log.warning("an exception of type %s has no text: its __str__ failed", type(error).__name__)
        return otherwise


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
    if isinstance(cause, UserCodeError):
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
