"""TRL's `rollout_func`: Ludus owns the loop over turns, and TRL samples the turns of all episodes together.

How it works:

* The first message of each prompt holds the address of its task (`ludus.integrations.trl.rows`). Equal addresses are
  one group: one request, one task, one seed.
* A completion is one growing list of ids. Sampled ids are kept as they are; the ids between two turns come from the
  chat template and are masked. TRL's template for training is used where it has one, since the model's own may write
  earlier turns differently, which one list of ids cannot hold.
* Nothing is sampled after the end of an episode. An unscored episode is masked whole, and has no reward.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from ludus.client import Driver, EpisodeOutcome, LudusError, TaskAddress, Turn
from ludus.client.sync import run_sync
from ludus.integrations.groups import start_drivers
from ludus.integrations.peers import require
from ludus.integrations.trl import TESTED
from ludus.integrations.unscored import RETRIES, count, not_started
from ludus.protocol.tool_calls import TextFormatName
from ludus.rendering import ChatMessage, Renderer, RenderingError

NO_LOGPROB: Final = 0.0
"""The log-probability of an id that was not sampled; TRL masks it."""


@dataclass
class LudusRollout:
    """The `rollout_func` of a trainer, together with `reward_funcs=[outcome_reward]`.

    An episode has at most `max_turns` turns, and at most one more than the trainer's `max_tool_calling_iterations`.

    Raises:
        PeerNotUsable: TRL is missing, or of an untested version.
        RenderingError: the chat template cannot be used, or writes earlier turns differently.
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
        while playing := [one for one in rollouts if one.outcome is None]:
            ids = [one.prompt + one.ids for one in playing]
            sampled, logprobs = trainer._generate_single_turn(ids, None, {}, num_generations=1)
            known = known and logprobs is not None
            run_sync(_take(playing, sampled, logprobs or [[NO_LOGPROB] * len(turn) for turn in sampled]))
        for one in rollouts:
            one.close(renderer.stop[0])
        return {
            "prompt_ids": [one.prompt for one in rollouts],
            "completion_ids": [one.ids for one in rollouts],
            "logprobs": [one.logprobs for one in rollouts] if known else None,
            "env_mask": [one.mask for one in rollouts],
            "ludus_reward": [one.outcome.value if one.outcome else None for one in rollouts],
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
    prompt: list[int] = field(default_factory=list[int])
    ids: list[int] = field(default_factory=list[int])
    """The completion: sampled turns, and what the template puts between them."""
    mask: list[int] = field(default_factory=list[int])
    """1 for ids that were sampled."""
    logprobs: list[float] = field(default_factory=list[float])
    outcome: EpisodeOutcome | None = None
    """How the episode ended; None while it is played."""
    _driver: Driver | None = None
    _messages: list[ChatMessage] = field(default_factory=list[ChatMessage])
    _text: str = ""
    _turns: int = 0
    _retries: int = 0

    @property
    def room(self) -> int:
        """How many ids more the episode may have."""
        return min(self.limits.completion, self.limits.context - len(self.prompt)) - len(self.ids)

    async def begin(self, started: Driver | LudusError) -> None:
        """Take a started episode."""
        if isinstance(started, LudusError):
            await self._settle(not_started(started))
            return
        self._driver, self._turns = started, 0
        self.ids, self.mask, self.logprobs = [], [], []
        self._messages = self.renderer.messages(started.items)
        self._text = self.renderer.text(self._messages, started.episode.tools)
        self.prompt = self.renderer.encode(self._text)
        if self.room < 1:
            await self._settle(await started.finish("context_limit"))

    async def take(self, sampled: Sequence[int], logprobs: Sequence[float]) -> None:
        """Take a sampled turn, and end the episode if it has ended or has no room for another turn."""
        driver, room, full = self._driver, self.room, False
        assert driver is not None
        self._add(sampled[:room], 1, logprobs[:room])
        turn = self.renderer.parse(sampled[:room])
        before, self._turns = len(driver.items), self._turns + 1
        # A call that was cut off is not made. A message that was cut off is the final message all the same.
        await driver.take(Turn(turn.items, stopped="context_limit" if turn.cut and turn.error else None))
        if not driver.done and self._turns < self.limits.turns:
            own = before + len(turn.items)
            said = replace(turn, items=tuple(driver.items[before:own]))
            new = self._between(self.renderer.messages([said, *driver.items[own:]]), driver)
            if len(new) < self.room:
                self._add(new, 0, [NO_LOGPROB] * len(new))
                return
            full = True
        await self._settle(await driver.finish("context_limit" if full else "turn_limit"))

    def _between(self, messages: list[ChatMessage], driver: Driver) -> list[int]:
        """Return the ids between the last turn and the next one."""
        self._messages += messages
        earlier, self._text = self._text, self.renderer.text(self._messages, driver.episode.tools)
        known = self.prompt + self.ids
        ids = self.renderer.extend(earlier, messages[0], self._text, known)
        if ids is None:
            raise RenderingError("the chat template writes earlier turns differently; give the tokenizer another one")
        return ids[len(known) :]

    def _add(self, ids: Sequence[int], mask: int, logprobs: Sequence[float]) -> None:
        self.ids += ids
        self.mask += [mask] * len(ids)
        self.logprobs += logprobs

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
        self.prompt = self.prompt or [end]
        if not self.ids:
            self._add([end], 0, [NO_LOGPROB])
        if self.outcome is None or self.outcome.value is None:
            self.mask = [0] * len(self.ids)


async def _start(rollouts: Sequence[_Rollout]) -> None:
    started = await start_drivers([one.address for one in rollouts])
    await asyncio.gather(*(one.begin(driver) for one, driver in zip(rollouts, started, strict=True)))


async def _take(playing: Sequence[_Rollout], sampled: Sequence[list[int]], logprobs: Sequence[list[float]]) -> None:
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
    given = "".join(f"{{%- set {name} = {value!r} -%}}" for name, value in trainer.chat_template_kwargs.items())
    return Renderer(tokenizer, chat_template=given + template, tool_calls=tool_calls)
