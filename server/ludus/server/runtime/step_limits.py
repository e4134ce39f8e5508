"""What the calls of one episode may take: memory, steps and observations.

The memory is limited so that an agent with one capability cannot fill the server. Calls that run or wait are
*pending*. When there are too many, a further call is refused with an error that says when to retry, and nothing of it
is kept. Settled calls are *held*, because the rubric, repeats and forks need them. A call whose arguments do not fit is
a refused step of which a digest is kept. An episode that holds too much is truncated.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from sys import getsizeof
from typing import Any, Final

from ludus.protocol.bounds import TooComplex, digest_of, footprint
from ludus.protocol.content import TextBlock
from ludus.protocol.episodes import StepError, StepResult
from ludus.protocol.errors import CapacityError
from ludus.protocol.lifecycle import EndReason
from ludus.server.authoring.results import cut
from ludus.server.runtime.episode import Call, Episode, StepRecord
from ludus.server.runtime.limits import ServerLimits

RECORD_BYTES: Final = 1024
"""The memory of a record without its arguments and its observation, rounded up."""

KEPT_REFUSED_BYTES: Final = 4096
"""Arguments of refused calls up to this size are kept in full."""

RETRY_SECONDS: Final = 1.0
"""After how many seconds to retry a call that was refused because of a full queue."""

NOT_RECEIVED: Final = ("invalid_arguments", "unknown_tool")
"""The errors of calls that no tool received."""

TOOL_NAME_CHARS: Final = 200
"""Tool names of calls are cut to this length; no tool has a longer name."""


class StepLimits:
    """Counts what calls take, and ends episodes that reach a limit.

    Args:
        limits: the limits to enforce.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits

    def admit(
        self, episode: Episode, arguments: Mapping[str, Any], text: str = "", *, final: bool = False
    ) -> tuple[int, StepError | None]:
        """Count a new call as pending, unless the episode's queue is full.

        Args:
            episode: the episode of the call.
            arguments: the call's arguments.
            text: further text that is kept with the call.
            final: whether it is the final answer, which is accepted however much the episode holds.

        Returns:
            The call's size in bytes, and the error to refuse it with, if any.

        Raises:
            CapacityError: too many calls of the episode are pending.
        """
        size, refused = RECORD_BYTES, None
        try:
            size += footprint(arguments) + (getsizeof(text) if text else 0)
        except TooComplex as error:
            refused = _too_large(str(error))
        else:
            # Small calls are always kept; only large ones must fit into the remaining allowance.
            if size > KEPT_REFUSED_BYTES and not final:
                allowed = self._limits.episode_bytes
                if size > allowed - episode.held - episode.pending_bytes:
                    refused = _too_large(f"episode_bytes, {allowed} for all calls, are used up")
        if refused is not None:
            size = RECORD_BYTES
        if episode.pending:
            self._check_queue(episode, size)
        episode.pending += 1
        episode.pending_bytes += size
        return size, refused

    def await_repeat(self, episode: Episode, record: StepRecord, arguments: Mapping[str, Any]) -> None:
        """Count a repeated call as pending while it waits for the first one's outcome.

        Raises:
            CapacityError: too many calls of the episode are pending.
        """
        size = self.await_recovery(episode, arguments)
        record.when_settled(partial(self.release, episode, size))

    def await_recovery(self, episode: Episode, arguments: Mapping[str, Any]) -> int:
        """Count a call as pending while its episode is rebuilt, and return its size; `release` ends that.

        Raises:
            CapacityError: too many calls of the episode are pending.
        """
        try:
            size = RECORD_BYTES + footprint(arguments)
        except TooComplex:
            size = RECORD_BYTES
        self._check_queue(episode, size)
        episode.pending += 1
        episode.pending_bytes += size
        return size

    def restore(self, episode: Episode, record: StepRecord, outcome: object) -> None:
        """Count an earlier call, with its outcome, as held."""
        record.size = RECORD_BYTES
        if record.digest is None:
            record.size += footprint(record.arguments)
        if isinstance(outcome, StepResult):
            record.size += _observed(outcome)
            episode.shown_chars += cut(outcome.content, None)[1]
        episode.held += record.size

    def settle(self, episode: Episode, record: StepRecord, outcome: object) -> None:
        """Count a settled call as held, and drop large arguments of a refused one."""
        episode.pending -= 1  # inlined `release`, because this runs for every step
        episode.pending_bytes -= record.size
        if isinstance(outcome, StepResult):
            error = outcome.error
            if error is not None and error.code in NOT_RECEIVED:
                self.drop(record)
            record.size += _observed(outcome)
        episode.held += record.size

    def drop(self, record: StepRecord) -> None:
        """Replace large arguments that no tool received by their digest."""
        if record.digest is None and record.size > KEPT_REFUSED_BYTES:
            record.digest, record.arguments = digest_of(record.arguments), {}
            record.size = RECORD_BYTES

    def limited(self, call: Call) -> Call:
        """Wrap a call: cut its observation, and end the episode with it when a limit of the episode is reached."""
        episode_bytes = self._limits.episode_bytes

        async def limit(episode: Episode, record: StepRecord) -> StepResult:
            result = await call(episode, record)
            limits = episode.limits
            content, chars = cut(result.content, limits.observation_chars)
            episode.shown_chars += chars
            changes: dict[str, Any] = {} if content is result.content else {"content": content}
            if result.end_reason is None:
                allowed = limits.total_observation_chars
                if limits.max_steps is not None and record.number >= limits.max_steps:
                    changes["end_reason"] = EndReason.STEP_LIMIT
                elif episode.held > episode_bytes or (allowed is not None and episode.shown_chars >= allowed):
                    changes["end_reason"] = EndReason.OBSERVATION_LIMIT
            return result.model_copy(update=changes) if changes else result

        return limit

    def _check_queue(self, episode: Episode, size: int) -> None:
        limits = self._limits
        if episode.pending >= limits.queue_calls:
            raise _queue_full(episode, f"{limits.queue_calls} calls", "queue_calls")
        if episode.pending_bytes + size > limits.queue_bytes:
            raise _queue_full(episode, f"{limits.queue_bytes} bytes of calls", "queue_bytes")

    def release(self, episode: Episode, size: int) -> None:
        """Count a call that waited as pending no longer."""
        episode.pending -= 1
        episode.pending_bytes -= size


def _too_large(cause: str) -> StepError:
    return StepError(code="invalid_arguments", message=f"The arguments are too large: {cause}. Call with less.")


def _queue_full(episode: Episode, allowance: str, limit: str) -> CapacityError:
    return CapacityError(
        f"episode {episode.id} has as many unfinished calls as it may ({allowance}); wait for one to finish and try "
        "again",
        limit=limit,
        retryAfter=RETRY_SECONDS,
        episode=episode.id,
    )


def _observed(result: StepResult) -> int:
    """Return the bytes of an observation and its metadata; metadata with very many values counts as `RECORD_BYTES`."""
    size = 0
    for block in result.content:
        size += (block.text if isinstance(block, TextBlock) else block.data).__sizeof__()
    if result.metadata:
        try:
            size += footprint(result.metadata)
        except TooComplex:
            size += RECORD_BYTES
    return size
