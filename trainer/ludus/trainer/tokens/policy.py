"""A policy that plays by tokens: each turn's prompt is the ids the engine has seen, and what came since."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ludus.client.items import Item, text_message
from ludus.client.policies.base import Conversation, Turn
from ludus.client.trajectory import Usage
from ludus.protocol.content import Message
from ludus.protocol.episodes import ToolSpec
from ludus.trainer.config import RolloutConfig
from ludus.trainer.engines.base import Engine, Generation, Sampling
from ludus.trainer.samples import Sample
from ludus.trainer.tokens.renderer import Entry, ParsedTurn, Renderer

SUMMARY_REQUEST: Final = (
    "The conversation is about to be cut. Without calling a tool, write what is needed to go on without it: "
    "what was found out, what was tried, and what is left to do."
)
SUMMARY: Final = "What happened so far, in your own words:\n"


@dataclass(slots=True)
class _Exchange:
    """A turn of the policy, and what came after it."""

    entries: list[Entry]
    start: int | None
    """Where its sampled ids begin in the prompt of the next turn; None when they were rendered anew since."""


class TokenPolicy:
    """One episode of a policy, for `ludus.client.play`. Afterwards, `samples` holds what the engine saw.

    When the prompt of a turn leaves less than a whole turn's room in the context, `config.when_full` decides:

    * `stop`: the turn may use what is left; when there is nothing, or it was not enough, the episode is stopped.
    * `keep_recent`: the older half of the turns is dropped, as often as needed. The ids of the others stay.
    * `summarise`: the policy is asked for a summary first, which then stands below the task. The newest turn stays.

    Args:
        engine: samples.
        renderer: of the engine's model.
        config: `max_tokens`, `context` and `when_full` are used.
        session: the episode's name at the engine.
        seed: each request has a seed of its own, derived from this one.
        temperature: of sampling; other values than 1 are for evaluation.
    """

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        config: RolloutConfig,
        *,
        session: str,
        seed: int,
        temperature: float = 1.0,
    ) -> None:
        self.parse_errors = 0
        """Turns in which a tool call could not be read."""
        self.cut_turns = 0
        """Turns that were as long as they may be, and so have no end."""
        self._engine = engine
        self._renderer = renderer
        self._config = config
        self._session = session
        self._seed = seed
        self._temperature = temperature
        self._context = min(config.context, engine.context)
        self._requests = 0
        self._usage = Usage()
        self._seen = 0
        self._turn = 0
        self._task: tuple[Entry, ...] = ()
        self._head: tuple[Entry, ...] = ()
        self._head_ids: list[int] = []
        self._past: list[_Exchange] = []
        self._record = _Recorder()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What the engine saw, in order. A new sample begins where a prompt did not extend the one before."""
        return self._record.samples

    async def __call__(self, conversation: Conversation) -> Turn:
        """Sample one turn.

        Raises:
            EngineError: the engine failed.
            ModelError: the chat template cannot render the conversation.
        """
        self._usage = Usage()
        self._turn = conversation.turn - 1
        self._observe(conversation)
        prompt = await self._fitted(conversation.tools)
        room = self._context - len(prompt)
        if room < 1:
            return Turn((), usage=self._usage, stopped="context_limit")
        parsed = await self._sample(prompt, min(room, self._config.max_tokens))
        if parsed.cut and room < self._config.max_tokens and (parsed.error or not parsed.calls):
            return Turn((), usage=self._usage, stopped="context_limit")
        self.cut_turns += parsed.cut
        self.parse_errors += parsed.error is not None
        self._past.append(_Exchange([parsed], len(prompt)))
        return Turn(parsed.items, usage=self._usage)

    async def aclose(self) -> None:
        """Let the engine forget the episode."""
        await self._engine.forget(self._session)

    def _observe(self, conversation: Conversation) -> None:
        """Take over what the conversation has more than last time: own items as recorded, then what answered them."""
        new = tuple(conversation.items[self._seen :])
        self._seen = len(conversation.items)
        if not self._past:
            self._task = self._head = (*self._head, *new)
            return
        last = self._past[-1]
        own = last.entries[0]
        assert isinstance(own, ParsedTurn)
        count = len(own.items)
        last.entries = [replace(own, items=new[:count]), *new[count:]]

    async def _fitted(self, tools: Sequence[ToolSpec]) -> list[int]:
        """The prompt of the next turn, after making room where there is too little."""
        if not self._past:
            self._head_ids = self._anew(tools)
            return self._head_ids
        prompt = self._extended(tools)
        if prompt is None:
            prompt = self._anew(tools)
            for exchange in self._past:
                exchange.start = None
        needed = self._config.max_tokens
        if self._config.when_full == "summarise":
            needed += self._config.max_tokens + len(self._renderer.prompt([_REQUEST], ()))
        if self._config.when_full == "stop" or len(prompt) + needed <= self._context or len(self._past) < 2:
            return prompt
        if self._config.when_full == "summarise":
            return await self._summarised(prompt, tools)
        while len(prompt) + needed > self._context and len(self._past) > 1:
            prompt = self._newest(prompt, len(self._past) // 2, tools)
        return prompt

    async def _summarised(self, prompt: list[int], tools: Sequence[ToolSpec]) -> list[int]:
        """A prompt of the task, the policy's own summary and the newest turn."""
        asked = self._extended(tools, _REQUEST) or self._anew(tools, _REQUEST)
        past = self._past
        while len(asked) + self._config.max_tokens > self._context and len(self._past) > 1:
            self._past = self._past[-(len(self._past) // 2) :]
            asked = self._anew(tools, _REQUEST)
        if len(asked) < self._context:
            written = await self._sample(asked, min(self._config.max_tokens, self._context - len(asked)))
            self._head = _with_summary(self._task, written.said or written.text)
            self._head_ids = self._renderer.prompt(self._head, tools)
        self._past = past
        return self._newest(prompt, 1, tools)

    def _newest(self, prompt: list[int], count: int, tools: Sequence[ToolSpec]) -> list[int]:
        """The prompt with only the newest turns; where their ids are known, they stay as they are."""
        self._past = self._past[-count:]
        first = self._past[0].start
        if first is None:
            return self._anew(tools)
        for exchange in self._past:
            exchange.start = (exchange.start or first) - first + len(self._head_ids)
        return self._head_ids + prompt[first:]

    def _extended(self, tools: Sequence[ToolSpec], *more: Item) -> list[int] | None:
        """What the engine has seen, and what follows; None when the template writes that differently now."""
        *earlier, last = self._past
        before = [*self._head, *(entry for exchange in earlier for entry in exchange.entries), last.entries[0]]
        follows = self._renderer.extend(before, [*before, *last.entries[1:], *more], tools, self._record.ids)
        return None if follows is None else self._record.ids + follows

    def _anew(self, tools: Sequence[ToolSpec], *more: Item) -> list[int]:
        past = (entry for exchange in self._past for entry in exchange.entries)
        return self._renderer.prompt([*self._head, *past, *more], tools)

    async def _sample(self, prompt: list[int], max_tokens: int) -> ParsedTurn:
        sampling = Sampling(max_tokens=max_tokens, stop=self._renderer.stop, temperature=self._temperature)
        seed = _seed(self._seed, self._requests)
        self._requests += 1
        generation = await self._engine.generate(prompt, sampling, seed=seed, session=self._session)
        self._record.add(prompt, generation, self._turn)
        self._usage += Usage(requests=1, input_tokens=len(prompt), output_tokens=len(generation.ids))
        return self._renderer.parse(generation.ids)


class _Recorder:
    """What the engine saw: prompts that extend each other are one sample."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._sampled: list[tuple[int, Generation, int]] = []
        self._closed: list[Sample] = []

    def add(self, prompt: list[int], generation: Generation, turn: int) -> None:
        if prompt[: len(self.ids)] != self.ids:
            self._closed = list(self.samples)
            self._sampled = []
        self._sampled.append((len(prompt), generation, turn))
        self.ids = [*prompt, *generation.ids]

    @property
    def samples(self) -> tuple[Sample, ...]:
        if not self._sampled:
            return tuple(self._closed)
        size = len(self.ids)
        mask, logprobs, versions, turns = [False] * size, [0.0] * size, [-1] * size, [-1] * size
        for start, generation, turn in self._sampled:
            own = slice(start, start + len(generation.ids))
            mask[own] = [True] * len(generation.ids)
            turns[own] = [turn] * len(generation.ids)
            logprobs[own] = generation.logprobs
            versions[own] = generation.versions
        return (*self._closed, Sample(tuple(self.ids), tuple(mask), tuple(logprobs), tuple(versions), tuple(turns)))


_REQUEST: Final = text_message("user", SUMMARY_REQUEST)


def _with_summary(task: Sequence[Entry], summary: str) -> tuple[Entry, ...]:
    """The task with the summary below it: in the last message if that is the user's, since roles should alternate."""
    note = text_message("user", SUMMARY + summary)
    last = task[-1] if task else None
    if isinstance(last, Message) and last.role == "user":
        return (*task[:-1], Message(role="user", content=(*last.content, *note.content)))
    return (*task, note)


def _seed(seed: int, request: int) -> int:
    digest = hashlib.blake2b(f"{seed}/{request}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # engines take signed 64-bit seeds
