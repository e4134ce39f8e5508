"""A policy on tokens: the prompt of each turn is the ids that the engine has seen, plus the ids of new messages."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

from ludus.client.policies.base import Conversation, Turn
from ludus.gateway.engine import PolicyEngine
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import text_message
from ludus.protocol.trajectory import Usage
from ludus.rendering import ChatMessage, ParsedTurn, Rendered, Renderer
from ludus.rendering.samples import Sample, SampleRecorder, Sampling

SUMMARY_REQUEST: Final = (
    "The conversation is about to be cut. Without calling a tool, write what is needed to go on without it: "
    "what was found out, what was tried, and what is left to do."
)
SUMMARY: Final = "What happened so far, in your own words:\n"


class TokenLimits(Protocol):
    """The bounds of a policy on tokens; `rollouts` of a training run is such an object."""

    @property
    def max_tokens(self) -> int:
        """The most tokens of one turn."""
        ...

    @property
    def context(self) -> int:
        """The most tokens of prompt and turn together; the engine's own limit if that is less."""
        ...

    @property
    def context_overflow(self) -> Literal["stop", "truncate_oldest", "summarize"]:
        """What happens when the context is full; see `TokenPolicy`."""
        ...


@dataclass(slots=True)
class _Prompt:
    """A prompt as the template writes it, and its ids."""

    rendered: Rendered
    ids: list[int]
    exact: bool
    """Whether sampled turns in it have the ids with which they were sampled, at the `start` of each exchange."""


@dataclass(slots=True)
class _Exchange:
    """A turn of the policy and the messages that answered it."""

    turn: ParsedTurn
    messages: list[ChatMessage]
    start: int | None
    """The index of the turn's first id in the newest prompt; None if the turn was rendered again since."""


@dataclass(slots=True, eq=False)
class TokenPolicy:
    """The policy in one episode, for `ludus.client.run_episode`. Afterwards, `samples` holds what the engine saw.

    If the prompt of a turn leaves less room in the context than a whole turn needs, `config.context_overflow` decides:

    * `stop`: the turn may use the remaining room. If there is none, or it was not enough, the episode is stopped.
    * `truncate_oldest`: drop the older half of the turns, as often as needed. The ids of the others stay the same.
    * `summarize`: let the policy write a summary, which is then placed below the task. Only the newest turn is kept.
    """

    engine: PolicyEngine
    renderer: Renderer
    config: TokenLimits
    session: str
    """The episode's name at the engine."""
    seed: int
    """The seed from which the seed of each request is derived."""
    temperature: float = 1.0
    """The sampling temperature; values other than 1 are for evaluation."""
    persistence: int = 0
    """How many times a turn without a tool call is sampled again, at most; for evaluation."""
    parse_errors: int = 0
    """The number of turns in which a tool call could not be parsed."""
    cut: bool = False
    """Whether the last turn was cut off at `max_tokens`. Such a turn without a call is still the final message."""
    _context: int = field(init=False)
    _requests: int = 0
    _usage: Usage = field(default_factory=Usage)
    _seen: int = 0
    _turn: int = 0
    _task: list[ChatMessage] = field(default_factory=list[ChatMessage])
    _summary: list[ChatMessage] = field(default_factory=list[ChatMessage])
    _past: list[_Exchange] = field(default_factory=list[_Exchange])
    _seen_text: str = ""
    """The text of the newest prompt that the engine got."""
    _before: Rendered | None = None
    """The conversation before the newest exchange, as it was rendered; None if earlier exchanges were dropped since."""
    _record: SampleRecorder = field(default_factory=SampleRecorder)

    def __post_init__(self) -> None:
        self._context = min(self.config.context, self.engine.context)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The tokens that the engine saw, in order. A new sample begins where a prompt does not extend the previous
        one."""
        return self._record.samples

    async def __call__(self, conversation: Conversation) -> Turn:
        """Sample one turn.

        Raises:
            Exception: the engine failed.
            RenderingError: the chat template cannot render the conversation.
        """
        self._usage = Usage()
        self._turn = conversation.turn - 1
        self._observe(conversation)
        prompt = await self._fitted(conversation.tools)
        room = self._context - len(prompt.ids)
        if room < 1:
            return Turn((), usage=self._usage, stopped="context_limit")
        if not prompt.exact:
            for exchange in self._past:
                exchange.start = None
        turn = await self._sample(prompt, min(room, self.config.max_tokens), conversation.tools)
        for _ in range(self.persistence):
            if turn.calls:
                break
            turn = await self._sample(prompt, min(room, self.config.max_tokens), conversation.tools)
        self.cut = turn.cut
        if turn.cut and room < self.config.max_tokens and (turn.error or not turn.calls):
            return Turn((), usage=self._usage, stopped="context_limit")
        self.parse_errors += turn.error is not None
        self._past.append(_Exchange(turn, self.renderer.messages([turn]), len(prompt.ids)))
        self._before = prompt.rendered
        return Turn(turn.items, usage=self._usage)

    def branch(self, place: str) -> TokenPolicy:
        """Return a copy that goes on from here, with a name and a seed of its own, which `place` distinguishes.

        Its prompts begin with the tokens until now as they were sampled. In its samples they do not count as sampled.
        """
        digest = hashlib.blake2b(f"{self.seed}/{place}".encode(), digest_size=6).digest()
        return replace(
            self,
            session=f"{self.session}/{place}".removesuffix("/"),
            seed=int.from_bytes(digest, "big"),
            parse_errors=0,
            cut=False,
            _requests=0,
            _task=list(self._task),
            _summary=list(self._summary),
            _past=[replace(exchange, messages=list(exchange.messages)) for exchange in self._past],
            _record=self._record.continued(),
        )

    async def aclose(self) -> None:
        """Release the episode's cache in the engine."""
        await self.engine.forget(self.session)

    def _observe(self, conversation: Conversation) -> None:
        """Take over the new items of the conversation: the policy's items as recorded, then the answers to them."""
        new = conversation.items[self._seen :]
        self._seen = len(conversation.items)
        if not self._past:
            self._task += self.renderer.messages(new)
            return
        last = self._past[-1]
        count = len(last.turn.items)
        last.messages = self.renderer.messages([replace(last.turn, items=tuple(new[:count])), *new[count:]])

    async def _fitted(self, tools: Sequence[ToolSpec]) -> _Prompt:
        """Return the prompt of the next turn, shortened if it leaves too little room."""
        run = self.renderer.run
        prompt = await run(self._next, tools)
        full, needed = self.config.context_overflow, self.config.max_tokens
        if full == "summarize":
            needed += self.config.max_tokens + len(await run(self.renderer.prompt, [_REQUEST], ()))
        if full == "stop" or len(self._past) < 2 or len(prompt.ids) + needed <= self._context:
            return prompt
        if full == "summarize":
            return await self._summarized(prompt, tools)
        while len(prompt.ids) + needed > self._context and len(self._past) > 1:
            prompt = await run(self._newest, len(self._past) // 2, prompt, tools)
        return prompt

    async def _summarized(self, prompt: _Prompt, tools: Sequence[ToolSpec]) -> _Prompt:
        """Return a prompt of the task, the policy's own summary and the newest exchange."""
        request, past = self.renderer.messages([_REQUEST]), self._past
        run = self.renderer.run
        question = await run(self._next, tools, request)
        while len(question.ids) + self.config.max_tokens > self._context and len(self._past) > 1:
            self._keep_newest(len(self._past) // 2)
            question = await run(self._next, tools, request)
        if (room := self._context - len(question.ids)) > 0:
            summary = await self._sample(question, min(room, self.config.max_tokens), tools)
            self._summary = self.renderer.messages([text_message("user", SUMMARY + (summary.message or summary.text))])
        self._past = past
        return await run(self._newest, 1, prompt, tools)

    def _newest(self, count: int, prompt: _Prompt, tools: Sequence[ToolSpec]) -> _Prompt:
        """Return the prompt with only the newest exchanges, which keep their sampled ids if the prompt is exact."""
        self._keep_newest(count)
        shortened = self._next(tools)
        first = self._past[0].start
        if first is None or not prompt.exact:
            return shortened
        head = self.renderer.encode(self.renderer.text(self._task_messages(), tools))
        for exchange in self._past:
            exchange.start = (exchange.start or first) - first + len(head)
        return _Prompt(shortened.rendered, head + prompt.ids[first:], exact=True)

    def _keep_newest(self, count: int) -> None:
        self._past = self._past[-count:]
        self._before = None

    def _next(self, tools: Sequence[ToolSpec], request: Sequence[ChatMessage] = ()) -> _Prompt:
        """Return the ids that the engine has seen plus the new ones; encode all again if the template rewrote text."""
        past = [message for exchange in self._past for message in exchange.messages]
        messages = [*self._task_messages(), *past, *request]
        if self._before is None:
            rendered = self.renderer.rendered(messages, tools)
        else:
            new = len(self._past[-1].messages) + len(request)
            rendered = self.renderer.continued(self._before, messages, new, tools)
        if self._past:
            turn = self._past[-1].messages[0]
            ids = self.renderer.extend(self._seen_text, turn, rendered.text, self._record.ids)
            if ids is not None:
                return _Prompt(rendered, ids, exact=True)
        return _Prompt(rendered, self.renderer.encode(rendered.text), exact=False)

    def _task_messages(self) -> list[ChatMessage]:
        """Return the task and the summary, joined into the task's last message if that is the user's, because roles
        should alternate."""
        if self._summary and self._task and self._task[-1]["role"] == "user":
            text = f"{self._task[-1]['content']}\n\n{self._summary[0]['content']}"
            return [*self._task[:-1], {"role": "user", "content": text}]
        return [*self._task, *self._summary]

    async def _sample(self, prompt: _Prompt, max_tokens: int, tools: Sequence[ToolSpec]) -> ParsedTurn:
        sampling = Sampling(max_tokens=max_tokens, stop=self.renderer.stop, temperature=self.temperature)
        digest = hashlib.blake2b(f"{self.seed}/{self._requests}".encode(), digest_size=8).digest()
        seed = int.from_bytes(digest, "big") >> 1  # engines use signed 64-bit seeds
        self._requests += 1
        generation = await self.engine.generate(prompt.ids, sampling, seed=seed, session=self.session)
        self._record.add(prompt.ids, generation, self._turn)
        self._seen_text = prompt.rendered.text
        self._usage += Usage(requests=1, input_tokens=len(prompt.ids), output_tokens=len(generation.ids))
        return self.renderer.parse(generation.ids, tools)


_REQUEST: Final = text_message("user", SUMMARY_REQUEST)
