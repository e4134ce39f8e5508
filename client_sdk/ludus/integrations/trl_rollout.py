"""TRL's `rollout_func`: Ludus owns the loop over turns, and TRL samples the turns of all episodes together.

How it works:

* The first message of each prompt holds the address of its task (`ludus.integrations.trl.rows`). Equal addresses are
  one group: one request, one task, one seed.
* A completion is one growing list of ids. Sampled ids are kept as they are; the ids between two turns come from the
  chat template and are masked. TRL's template for training is used where it has one, as in the rest of TRL.
* Nothing is sampled after the end of an episode. An unscored episode is masked whole, and has no reward.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ludus.client import Driver, EpisodeOutcome, LudusError, TaskAddress
from ludus.client.sync import run_sync
from ludus.forms.tool_calls import TextFormatName
from ludus.integrations.groups import start_drivers
from ludus.integrations.peers import require
from ludus.integrations.token_loop import Tape, TokenEpisode
from ludus.integrations.trl import TESTED
from ludus.integrations.unscored import RETRIES, count, not_started
from ludus.rendering import Renderer


@dataclass
class LudusRollout:
    """The `rollout_func` of a trainer, together with `reward_funcs=[outcome_reward]`.

    An episode has at most `max_turns` turns, and at most one more than the trainer's `max_tool_calling_iterations`.

    Raises:
        PeerNotUsable: TRL is missing, or of an untested version.
        RenderingError: the chat template cannot be used.
        RequestError: the request is set up wrongly, so every episode would fail.
    """

    max_turns: int = 16
    tool_calls: Literal["auto"] | TextFormatName = "auto"
    """The form in which the model writes tool calls; `auto` detects it from the chat template."""

    def __post_init__(self) -> None:
        require("trl", TESTED)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Play one episode for each prompt.

        Returns:
            `prompt_ids`, `completion_ids`, `logprobs` (None if the engine gives none), `env_mask`, and `ludus_reward`
            for `outcome_reward`.
        """
        limits, renderer = _limits_of(trainer, self.max_turns), _renderer(trainer, self.tool_calls)
        rollouts = [_Rollout(TaskAddress.from_json(prompt[0]["ludus"]), renderer, limits) for prompt in prompts]
        run_sync(_start(rollouts))
        known = True
        while playing := [rollout for rollout in rollouts if rollout.outcome is None]:
            ids = [one.tape.prompt + one.tape.ids for one in playing]
            sampled, logprobs = trainer._generate_single_turn(ids, None, {}, num_generations=1)
            known = known and logprobs is not None
            run_sync(_take(playing, sampled, logprobs or [None] * len(sampled)))
        for one in rollouts:
            one.close(renderer.stop[0])
        return {
            "prompt_ids": [rollout.tape.prompt for rollout in rollouts],
            "completion_ids": [rollout.tape.ids for rollout in rollouts],
            "logprobs": [rollout.tape.logprobs for rollout in rollouts] if known else None,
            "env_mask": [rollout.tape.mask for rollout in rollouts],
            "ludus_reward": [rollout.outcome.value if rollout.outcome else None for rollout in rollouts],
        }


@dataclass(frozen=True)
class _Limits:
    """The most that an episode may have: ids of its completion, ids in all, and turns."""

    completion: int
    context: int
    turns: int


@dataclass(eq=False)
class _Rollout:
    """The episode of one prompt, and its ids."""

    address: TaskAddress
    renderer: Renderer
    limits: _Limits
    tape: Tape = field(default_factory=Tape)
    outcome: EpisodeOutcome | None = None
    """How the episode ended; None while it is played."""
    _driver: Driver | None = None
    _episode: TokenEpisode | None = None
    _retries: int = 0

    @property
    def room(self) -> int:
        """How many ids more the episode may have."""
        return min(self.limits.completion, self.limits.context - len(self.tape.prompt)) - len(self.tape.ids)

    async def begin(self, started: Driver | LudusError) -> None:
        """Take a started episode."""
        if isinstance(started, LudusError):
            await self._settle(not_started(started))
            return
        self._driver, self._episode = started, TokenEpisode(self.renderer, started)
        self.tape = Tape(list(self._episode.prompt))
        if self.room < 1:
            await self._settle(await started.finish("context_limit"))

    async def take(self, sampled: Sequence[int], logprobs: Sequence[float] | None) -> None:
        """Take a sampled turn, and end the episode if it has ended or has no room for another turn."""
        assert self._driver is not None
        assert self._episode is not None
        own = sampled[: self.room]
        self.tape.sampled(own, None if logprobs is None else logprobs[: self.room])
        new = await self._episode.take(own)
        if new is None or len(self.tape.turns) >= self.limits.turns:
            await self._settle(await self._driver.finish("turn_limit"))
        elif len(new) >= self.room:
            await self._settle(await self._driver.finish("context_limit"))
        else:
            self.tape.observed(new)

    async def _settle(self, outcome: EpisodeOutcome) -> None:
        """Keep the outcome, or play again if the infrastructure failed."""
        if outcome.failure is not None and outcome.failure.kind == "infrastructure" and self._retries < RETRIES:
            self._retries += 1
            (started,) = await start_drivers([self.address])
            await self.begin(started)
        else:
            self.outcome = count(outcome, "trl")

    def close(self, end: int) -> None:
        """Mask the ids of an unscored episode. TRL needs at least one id of each."""
        self.tape.prompt = self.tape.prompt or [end]
        if self.outcome is None or self.outcome.value is None or not self.tape.ids:
            self.tape.hide(end)


async def _start(rollouts: Sequence[_Rollout]) -> None:
    started = await start_drivers([rollout.address for rollout in rollouts])
    await asyncio.gather(*(rollout.begin(driver) for rollout, driver in zip(rollouts, started, strict=True)))


async def _take(
    playing: Sequence[_Rollout], sampled: Sequence[list[int]], logprobs: Sequence[list[float] | None]
) -> None:
    await asyncio.gather(*map(_Rollout.take, playing, sampled, logprobs))


def _limits_of(trainer: Any, max_turns: int) -> _Limits:
    context = trainer.args.vllm_max_model_length if trainer.use_vllm else None
    context = context or trainer.model.config.get_text_config().max_position_embeddings
    turns = min(max_turns, trainer.max_tool_calling_iterations + 1)
    return _Limits(trainer.max_completion_length, context, turns)


def _renderer(trainer: Any, tool_calls: Literal["auto"] | TextFormatName) -> Renderer:
    from trl.chat_template_utils import (  # pyright: ignore[reportMissingImports]
        get_training_chat_template,  # pyright: ignore[reportUnknownVariableType]
    )

    tokenizer = trainer.processing_class
    try:
        template = get_training_chat_template(tokenizer) or tokenizer.chat_template
    except ValueError:  # TRL does not know this template
        template = tokenizer.chat_template
    return Renderer(tokenizer, chat_template=template, tool_calls=tool_calls, options=trainer.chat_template_kwargs)
