"""The lifecycle of an episode as one table, which the spec's diagram and the runtime's checks are derived from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

__all__ = ["EndReason", "is_terminated", "is_truncated"]


class EpisodeStatus(StrEnum):
    """The status of an episode. An episode has none until its setup has succeeded."""

    RUNNING = "running"
    """Steps are accepted. Every episode begins with this status."""
    COMPLETED = "completed"
    """The task itself ended."""
    TRUNCATED = "truncated"
    """A limit, a close or the environment cut it short; it keeps what it has earned."""
    FAILED = "failed"
    """The environment or what it runs on broke; its reward is unscored."""
    CLOSED = "closed"
    """Idleness or the end of its server ended it before its task did; its reward is unscored."""


class EndReason(StrEnum):
    """Why an episode ended. Closed: a new reason is a new version of the extension."""

    COMPLETED = "completed"
    """A tool said that the task is finished."""
    SUBMITTED = "submitted"
    """A final answer was graded."""
    STEP_LIMIT = "step_limit"
    """The allowed number of steps was used."""
    TIME_LIMIT = "time_limit"
    """The episode's wall-clock limit passed."""
    OBSERVATION_LIMIT = "observation_limit"
    """The episode's observations outgrew their allowance."""
    TRUNCATED = "truncated"
    """The environment cut it short."""
    EXPIRED = "expired"
    """It was not used for longer than its idle limit."""
    CLOSED = "closed"
    """The trainer or the agent closed it while it ran."""
    SERVER_STOPPED = "server_stopped"
    """Its server stopped while it ran."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment's own code raised, hung or returned what it may not."""
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    """Something below the environment broke: a sandbox, a database, the server."""


class Event(StrEnum):
    """An event that ends an episode."""

    FINISH = "finish"
    LIMIT = "limit"
    FAIL = "fail"
    CLOSE = "close"


TRANSITIONS: Final[Mapping[tuple[EpisodeStatus, Event], EpisodeStatus]] = MappingProxyType(
    {
        (EpisodeStatus.RUNNING, Event.FINISH): EpisodeStatus.COMPLETED,
        (EpisodeStatus.RUNNING, Event.LIMIT): EpisodeStatus.TRUNCATED,
        (EpisodeStatus.RUNNING, Event.FAIL): EpisodeStatus.FAILED,
        (EpisodeStatus.RUNNING, Event.CLOSE): EpisodeStatus.CLOSED,
    }
)
"""All transitions. A status without a row is final."""

EVENT_OF_REASON: Final[Mapping[EndReason, Event]] = MappingProxyType(
    {
        EndReason.COMPLETED: Event.FINISH,
        EndReason.SUBMITTED: Event.FINISH,
        EndReason.STEP_LIMIT: Event.LIMIT,
        EndReason.TIME_LIMIT: Event.LIMIT,
        EndReason.OBSERVATION_LIMIT: Event.LIMIT,
        EndReason.TRUNCATED: Event.LIMIT,
        EndReason.CLOSED: Event.LIMIT,
        EndReason.EXPIRED: Event.CLOSE,
        EndReason.SERVER_STOPPED: Event.CLOSE,
        EndReason.ENVIRONMENT_ERROR: Event.FAIL,
        EndReason.INFRASTRUCTURE_ERROR: Event.FAIL,
    }
)
"""Each end reason belongs to exactly one event."""

FINAL_STATUSES: Final = frozenset(EpisodeStatus) - {status for status, _ in TRANSITIONS}
"""The statuses of episodes that have ended."""


def advance(status: EpisodeStatus, event: Event) -> EpisodeStatus:
    """Return the status after `event`.

    Raises:
        ValueError: the table has no such transition (a bug of the caller, not of the peer).
    """
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise ValueError(f"an episode that is {status} cannot {event}") from None


def is_terminated(reason: EndReason | None) -> bool:
    """Return whether the task itself ended (Gymnasium's `terminated`)."""
    return reason is not None and EVENT_OF_REASON[reason] is Event.FINISH


def is_truncated(reason: EndReason | None) -> bool:
    """Return whether the episode was cut short and what it earned stands (Gymnasium's `truncated`)."""
    return reason is not None and EVENT_OF_REASON[reason] is Event.LIMIT


def mermaid() -> str:
    """Return the lifecycle as a Mermaid state diagram, generated from `TRANSITIONS`."""
    reasons = {event: ", ".join(r for r, e in EVENT_OF_REASON.items() if e is event) for event in Event}
    lines = ["stateDiagram-v2", f"    [*] --> {EpisodeStatus.RUNNING}"]
    for (source, event), target in TRANSITIONS.items():
        lines.append(f"    {source} --> {target} : {event}: {reasons[event]}")
    lines += [f"    {status} --> [*]" for status in EpisodeStatus if status in FINAL_STATUSES]
    return "\n".join(lines) + "\n"
