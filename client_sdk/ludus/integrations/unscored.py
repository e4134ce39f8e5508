"""What every adapter does with an episode that has no value."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from ludus.client import EpisodeOutcome
from ludus.client.driver import EPISODE_LOST_ERRORS, failure_of
from ludus.protocol.errors import LudusError, RequestError

RETRIES: Final = 2
"""How many times more an episode is played whose infrastructure failed."""

_TRIED: Final = ("ConnectionFailed", "DeadlineExceeded")
"""Failures after which an episode is not played again: the client has already tried for as long as it may."""

UNSCORED: Final[Counter[str]] = Counter()
"""How many episodes of this process stayed unscored, by adapter."""

_COUNTING: Final = threading.Lock()  # some trainers play each episode in a thread


async def play_again(play: Callable[[], Awaitable[EpisodeOutcome]], adapter: str) -> EpisodeOutcome:
    """Play an episode until its infrastructure does not fail, at most `RETRIES` times more, and count it if unscored.

    It is not played again if the server could not be reached, because the client has then tried to reconnect in vain.

    Args:
        play: starts a new episode of the same task and seed, plays it and returns its outcome.
        adapter: the name under which `UNSCORED` counts.
    """
    outcome = await play()
    for _ in range(RETRIES):
        failure = outcome.failure
        if failure is None or failure.kind != "infrastructure" or failure.error in _TRIED:
            break
        outcome = await play()
    return count(outcome, adapter)


def count(outcome: EpisodeOutcome, adapter: str) -> EpisodeOutcome:
    """Count an outcome in `UNSCORED` if it has no value, and return it."""
    if outcome.value is None:
        with _COUNTING:
            UNSCORED[adapter] += 1
    return outcome


def not_started(error: LudusError) -> EpisodeOutcome:
    """Return the outcome of an episode that could not be started or ended because of an error.

    Raises:
        RequestError: `error` itself, if every episode would fail like this, such as with a refused token.
    """
    if isinstance(error, RequestError) and not isinstance(error, EPISODE_LOST_ERRORS):
        raise error
    failure = failure_of(error)
    reason = f"{failure.kind} failure: {failure.message}"
    return EpisodeOutcome(None, reason, {}, end_reason=None, stopped=None, failure=failure)
