"""The span of an episode as the current one, for code that makes spans of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ludus.client.episode import Episode


def in_trace(episode: Episode) -> AbstractContextManager[None]:
    """Make the span of an episode the current one for a `with` block; without tracing, do nothing.

    `run_episode` does it around the whole episode, so that the spans of a policy, such as those of its model's client,
    are in the episode's trace.
    """
    wire: Any = episode._wire
    within = getattr(wire, "within", None)
    return nullcontext() if within is None else within(episode.id)
