"""One episode as an environment of tinker-cookbook; see `ludus.integrations.tinker`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from ludus.client import Driver, EpisodeOutcome, GroupMember, TaskAddress
from ludus.integrations.peers import require
from ludus.integrations.token_loop import TokenEpisode
from ludus.integrations.unscored import count, not_started
from ludus.protocol.errors import EpisodeFailed, InfrastructureFailed, LudusError, Unsupported
from ludus.protocol.trajectory import Stop
from ludus.rendering import Renderer

require("tinker-cookbook", "0.6.1")

from tinker import ModelInput  # noqa: E402  # pyright: ignore[reportMissingImports]
from tinker_cookbook.rl.rollout_limits import RolloutLimits  # noqa: E402  # pyright: ignore[reportMissingImports]
from tinker_cookbook.rl.types import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    Env,
    InitialObservationOverflow,
    StepResult,
)

ADAPTER: Final = "tinker"
"""The name under which unscored episodes are counted."""


class LudusEnv(Env):  # type: ignore[misc]
    """One episode. Its `close` must be called, as `LudusGroupBuilder.cleanup` does.

    Args:
        address: the task.
        renderer: makes tokens of messages.
        limits: what the cookbook's rollout limits, unless it has limits of its own.
        join: the place in a group; a group of one when None.
    """

    def __init__(
        self,
        address: TaskAddress,
        renderer: Renderer,
        limits: RolloutLimits,
        join: GroupMember | None = None,
    ) -> None:
        self.rollout_limits: Final = limits  # the name that the cookbook looks for
        self._address, self._renderer, self._join = address, renderer, join
        self._stop: Final = list(renderer.stop)
        self._episode: TokenEpisode | None = None
        self._ids: list[int] = []
        self._driver: Driver | None = None
        self._outcome: EpisodeOutcome | None = None
        self._open: Final = AsyncExitStack()
        self._starting: Final = asyncio.Lock()
        self._closed = False

    async def initial_observation(self) -> tuple[ModelInput, list[int]] | InitialObservationOverflow:
        """Start the episode and return its prompt; an episode that cannot start is a rollout without tokens.

        Raises:
            RequestError: every episode would fail like this, such as with a refused token.
            ValueError: the prompt leaves no room for an answer.
        """
        try:
            driver = self._driver = await self._start()
        except LudusError as error:
            self._outcome = count(not_started(error), ADAPTER)
            return InitialObservationOverflow(reward=0.0, logs={"ludus_unscored": self._outcome.reason})
        self._episode = TokenEpisode(self._renderer, driver)
        self._ids = list(self._episode.prompt)
        room = self.rollout_limits.max_trajectory_tokens
        if room is not None and len(self._ids) + 1 >= room:
            raise ValueError(
                f"the prompt of task {self._address.task} has {len(self._ids)} tokens with its tools, and "
                f"max_trajectory_tokens is {room}: raise it"
            )
        return ModelInput.from_ints(self._ids), self._stop

    async def step(self, action: list[int], *, extra: Mapping[str, Any] | None = None) -> StepResult:
        """Take what the model sampled; a message that was cut off ends the episode, which keeps what it has earned.

        Raises:
            RequestError: every episode would fail like this, such as with a refused token.
        """
        assert self._episode is not None, "initial_observation() comes first"
        self._ids += action
        if (extra or {}).get("stop_reason") == "length" and not (action and action[-1] in self._stop):
            return self._last(await self.finish("context_limit"), {"stop/max_tokens": 1.0})
        new = await self._episode.take(action)
        if new is None:
            return self._last(await self.finish(), {})
        self._ids += new
        return StepResult(0.0, False, ModelInput.from_ints(self._ids), self._stop)

    async def finish(self, stopped: Stop = "turn_limit") -> EpisodeOutcome:
        """Close the episode and return its outcome. A second call returns the same.

        Args:
            stopped: why the rollout ended, if the episode did not.
        """
        if self._outcome is None and self._driver is not None:
            self._outcome = count(await self._driver.finish(stopped), ADAPTER)
        if self._outcome is None:
            self._outcome = count(not_started(InfrastructureFailed("the rollout ended before its episode")), ADAPTER)
        return self._outcome

    async def close(self) -> None:
        """Close the episode and its connection; it cannot be started any more."""
        self._closed = True
        async with self._starting:
            await self._open.aclose()

    async def _start(self) -> Driver:
        async with self._starting:
            if self._closed:
                raise EpisodeFailed("its group was closed before it started")
            if self._join is not None:
                try:
                    return await self._enter(self._join)
                except (EpisodeFailed, Unsupported):
                    pass  # one broken setup fails the group's request, and some wires have no groups
            return await self._enter(None)

    async def _enter(self, join: GroupMember | None) -> Driver:
        return await self._open.enter_async_context(self._address.drive(join=join))

    def _last(self, outcome: EpisodeOutcome, metrics: dict[str, float]) -> StepResult:
        logs = {} if outcome.value is not None else {"ludus_unscored": outcome.reason}
        return StepResult(0.0, True, ModelInput.empty(), self._stop, metrics, logs)
