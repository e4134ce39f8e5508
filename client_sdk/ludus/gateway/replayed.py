"""The replies of an episode, played once more: whether a harness ends in the same way again.

A harness that ended with an error may have been broken by what the policy wrote, or by the machine that it ran on. The
same replies bring about the same end in the first case, and mostly another one in the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ludus.gateway.engine import PolicyEngine
from ludus.gateway.session import EpisodeSession, ModelCall
from ludus.rendering.samples import Generation, Sampling


class Diverged(Exception):
    """A harness asked for more replies than were recorded, so it does not end as it did."""


class RecordedEngine:
    """An engine that gives the replies of an episode again.

    Prompts may differ, because programs write the date or a folder into them: a prompt that was recorded gets its own
    reply, and any other one the first reply that is left.

    Args:
        engine: the engine that gave the replies, for the size of its context.
        session: the session that has them.
    """

    def __init__(self, engine: PolicyEngine, session: EpisodeSession) -> None:
        self._engine = engine
        self.diverged = False
        """Whether the harness asked for more replies than were recorded."""
        samples = session.samples
        self._left: list[tuple[tuple[int, ...], ModelCall]] = [
            (tuple(samples[call.sample].ids[: call.start]), call) for call in session.calls
        ]

    @property
    def context(self) -> int:
        """See `PolicyEngine`."""
        return self._engine.context

    @property
    def used_up(self) -> bool:
        """Whether every reply was asked for again."""
        return not self._left

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        """See `PolicyEngine`.

        Raises:
            Diverged: no reply is left.
        """
        if not self._left:
            self.diverged = True
            raise Diverged("the harness asks for more replies than were recorded")
        prompt = tuple(ids)
        index = next((number for number, (recorded, _) in enumerate(self._left) if recorded == prompt), 0)
        return replace(self._left.pop(index)[1].generation)

    async def forget(self, session: str) -> None:
        """See `PolicyEngine`; nothing is cached."""
