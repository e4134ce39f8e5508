"""An engine that says given texts, and a harness around `TokenPolicy` without an environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ludus.client.policies.base import Conversation, Turn
from ludus.gateway.token_policy import TokenPolicy
from ludus.protocol.content import TextBlock
from ludus.protocol.episodes import TaskRow, ToolSpec
from ludus.protocol.items import Item, OutputItem, text_message
from ludus.trainer.core.samples import Sample
from ludus.trainer.engines.base import Engine, Finish, Generation, Sampling, WeightUpdate
from ludus.trainer.engines.clock import PlayClock

ADD = ToolSpec(
    name="add",
    description="Add.",
    input_schema={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
)


@dataclass
class Request:
    prompt: list[int]
    sampling: Sampling
    seed: int
    session: str
    generation: Generation


@dataclass
class ScriptedEngine:
    """Answers with the given ids one after the other, cut to what was asked for; each log-probability is unique."""

    turns: Iterable[Sequence[int]]
    context: int = 100_000
    version: int = 0
    requests: list[Request] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    sampled: int = 0
    clock: PlayClock = field(default_factory=PlayClock)

    def __post_init__(self) -> None:
        self._turns = iter(self.turns)

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        turn = tuple(next(self._turns))[: sampling.max_tokens]
        numbers = range(self.sampled + 1, self.sampled + 1 + len(turn))
        self.sampled += len(turn)
        finish: Finish = "stop" if turn and turn[-1] in sampling.stop else "length"
        versions = tuple(self.version + n // 3 for n in numbers)
        generation = Generation(turn, tuple(-float(n) for n in numbers), versions, finish)
        self.requests.append(Request(list(ids), sampling, seed, session, generation))
        return generation

    async def logprobs(self, ids: Sequence[int]) -> dict[str, list[float]]:
        raise NotImplementedError

    async def update_weights(self, update: WeightUpdate) -> None:
        raise NotImplementedError

    async def forget(self, session: str) -> None:
        self.forgotten.append(session)

    async def aclose(self) -> None:
        return


class Recorder:
    """An engine that notes what another is asked and answers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.context = engine.context
        self.requests: list[Request] = []

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        generation = await self._engine.generate(ids, sampling, seed=seed, session=session)
        self.requests.append(Request(list(ids), sampling, seed, session, generation))
        return generation

    async def forget(self, session: str) -> None:
        await self._engine.forget(session)


def assert_samples_are_what_was_seen(samples: Sequence[Sample], requests: Sequence[Request], context: int) -> None:
    """Check that ids, masks, log-probabilities and versions of an episode's samples equal those of its requests."""
    remaining = list(samples)
    position = 0
    for request in requests:
        seen = [*request.prompt, *request.generation.ids]
        assert len(seen) <= context
        while not _continues(remaining[0], seen, position):
            assert position > 0, "a sample that begins with no request's prompt"
            del remaining[0]
            position = 0
        own = slice(len(request.prompt), len(seen))
        sample = remaining[0]
        assert sample.ids[: len(seen)] == tuple(seen)
        assert sample.mask[position : own.start] == (False,) * (own.start - position)
        assert all(sample.mask[own])
        assert sample.logprobs[own] == request.generation.logprobs
        assert sample.versions[own] == request.generation.versions
        position = len(seen)
    assert len(remaining) == 1
    assert position == len(remaining[0].ids)


def _continues(sample: Sample, seen: Sequence[int], position: int) -> bool:
    return len(sample.ids) >= len(seen) > position and sample.ids[: len(seen)] == tuple(seen)


def conversation(items: Sequence[Item], turn: int, tools: tuple[ToolSpec, ...] = (ADD,)) -> Conversation:
    task = TaskRow(id="t", split="train", index=0, fields={})
    return Conversation("test", task, 0, 0, turn, tuple(items), tools, gradable=True)


async def played(
    policy: TokenPolicy,
    prompt: Sequence[Item],
    turns: int,
    answer: Callable[[int], str] = lambda turn: f"Answer {turn}.",
    tools: tuple[ToolSpec, ...] = (ADD,),
) -> tuple[list[Item], list[Turn]]:
    """Turn after turn, each call answered; a message is answered by a user's. The conversation, and the turns."""
    items: list[Item] = list(prompt)
    taken: list[Turn] = []
    for number in range(1, turns + 1):
        turn = await policy(conversation(items, number, tools))
        taken.append(turn)
        if turn.stopped is not None:
            break
        items += turn.items
        items += [output(call.call_id, answer(number)) for call in turn.calls]
        if not turn.calls:
            items.append(text_message("user", answer(number)))
    return items, taken


def output(call_id: str, text: str) -> OutputItem:
    return OutputItem(call_id, (TextBlock(text=text),))


def said(tokenizer: Any, text: str, end: str | None) -> list[int]:
    """The ids of a turn, with the token that ends it."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return [*ids, tokenizer.convert_tokens_to_ids(end)] if end else ids
