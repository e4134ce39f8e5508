"""The episodes of one task as a group builder of tinker-cookbook; see `ludus.integrations.tinker`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final, Literal
from uuid import uuid4

from ludus.client import GroupMember, TaskAddress
from ludus.forms.tool_calls import TextFormatName
from ludus.integrations.tinker_env import LudusEnv
from ludus.integrations.token_loop import renderer_of
from ludus.protocol.trajectory import Stop

from tinker_cookbook.exceptions import AllTrajectoriesFailedError  # isort: skip  # pyright: ignore[reportMissingImports]
from tinker_cookbook.rl.rollout_limits import RolloutLimits  # isort: skip  # pyright: ignore[reportMissingImports]
from tinker_cookbook.rl.types import (  # isort: skip  # pyright: ignore[reportMissingImports]
    PARSE_ERROR_MASKED_METRIC_KEY,
    EnvGroupBuilder,
    Trajectory,
)
from tinker_cookbook.tokenizer_utils import get_tokenizer  # isort: skip  # pyright: ignore[reportMissingImports]

_STOPS: Final[Mapping[str, Stop]] = {
    "max_tokens": "context_limit",
    "max_sampled_tokens": "context_limit",
    "rollout_timeout": "time_limit",
}


@dataclass
class LudusGroupBuilder(EnvGroupBuilder):  # type: ignore[misc]
    """The episodes of one task and one seed. It pickles, because it holds an address and names.

    Raises:
        RenderingError: the chat template cannot be used.
        TypeError: the model's tokenizer has no chat template that `transformers` can apply.
    """

    address: TaskAddress
    model_name: str
    """The model whose tokenizer and chat template to use."""
    size: int = 8
    tool_calls: Literal["auto"] | TextFormatName = "auto"
    """The form in which the model writes tool calls; `auto` detects it from the chat template."""
    max_turns: int | None = None
    """How many messages an episode may have; any number when None."""
    max_trajectory_tokens: int | None = None
    """How many tokens an episode may have, with its prompt; any number when None."""
    template_options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the chat template, such as `enable_thinking`."""
    _envs: list[LudusEnv] = field(default_factory=list, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_envs": []}

    async def make_envs(self) -> Sequence[LudusEnv]:
        """Return environments that start when they are played, together as one group.

        After a failure the cookbook asks again and plays the first one only, so each of these is a group of its own.
        """
        tokenizer = get_tokenizer(self.model_name)
        if not hasattr(tokenizer, "apply_chat_template"):
            raise TypeError(f"the tokenizer of {self.model_name} has no chat template; choose another model")
        renderer = renderer_of(tokenizer, self.tool_calls, self.template_options)
        limits = RolloutLimits(max_turns=self.max_turns, max_trajectory_tokens=self.max_trajectory_tokens)
        joins: list[GroupMember | None] = [None] * self.size
        if self.size > 1 and not self._envs:
            key = f"tinker/{uuid4().hex}"
            joins = [GroupMember(key, self.size, place) for place in range(self.size)]
        envs = [LudusEnv(self.address, renderer, limits, join) for join in joins]
        self._envs += envs
        return envs

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[LudusEnv]
    ) -> list[tuple[float, dict[str, float]]]:
        """Return the value of each episode, and the mean of the scored ones for each masked, unscored one.

        Raises:
            AllTrajectoriesFailedError: no episode has a value.
        """
        stops: list[Stop] = [_STOPS.get(str(trajectory.stop_reason), "turn_limit") for trajectory in trajectory_group]
        outcomes = await asyncio.gather(*(env.finish(stop) for env, stop in zip(env_group, stops, strict=True)))
        values = [outcome.value for outcome in outcomes if outcome.value is not None]
        if not values:
            raise AllTrajectoriesFailedError(f"no episode of task {self.address.task} is scored: {outcomes[0].reason}")
        found = []
        for trajectory, outcome in zip(trajectory_group, outcomes, strict=True):
            metrics = {"ludus_unscored": float(outcome.value is None)}
            metrics |= {f"ludus/{name}": value for name, value in outcome.components.items()}
            found.append((fmean(values) if outcome.value is None else outcome.value, metrics))
            if outcome.value is None:
                for transition in trajectory.transitions:
                    transition.metrics[PARSE_ERROR_MASKED_METRIC_KEY] = 1.0
        return found

    async def cleanup(self) -> None:
        """Close all episodes."""
        envs, self._envs = self._envs, []
        for error in await asyncio.gather(*(env.close() for env in envs), return_exceptions=True):
            if error is not None:
                logging.getLogger(__name__).warning("an episode could not be closed: %s", error)

    def logging_tags(self) -> list[str]:
        """Return the environment's name."""
        return [self.address.environment]
