"""One episode at the gateway: its model calls, and the token-exact samples that they make.

How this works:

* A call's messages are compared with the conversations that the episode has had so far. Each conversation ends with a
  turn that the policy sampled (a `_Place`).
* If the messages begin with such a conversation, with the same tools, the prompt is the recorded ids plus the ids of
  the new messages. Text that the policy sampled is never encoded again, and the call continues the training sample.
* If another call continues that conversation already (a retry, a subagent), the prompt is the same, but the call begins
  a new sample, so that no sampled token is trained on twice.
* If the harness rewrote its context, changed its tools, or the chat template rewrites earlier turns, all messages are
  encoded again and the call begins a new sample. Turns that the policy sampled keep their own words where the harness
  left them unchanged.
* Ids of calls are the gateway's own, unique in the episode. A harness may replace them: calls are found by position. If
  it keeps them, it may write the text next to a call, and its arguments, in other words: the sampled ones stay.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final, Literal

from ludus.gateway.engine import PolicyEngine
from ludus.gateway.wires.requests import (
    AssistantEntry,
    CallText,
    ContextFull,
    Entry,
    Key,
    ModelReply,
    ModelRequest,
    OutputEntry,
    Refusal,
    StoredResponses,
    assistant_key,
    call_text,
    keys_of,
)
from ludus.protocol.content import TextBlock
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import CallItem, Item, MalformedCall, OutputItem, parse_arguments, text_message
from ludus.protocol.trajectory import Stop
from ludus.rendering import Called, ChatMessage, ParsedTurn, Rendered, Renderer, RenderingError, TemplateExceeded
from ludus.rendering.samples import Generation, Sample, SampleRecorder, Sampling

TimeLimit = Callable[[float | None], AbstractAsyncContextManager[asyncio.Timeout]]
"""Makes the time limit of a call; a trainer gives one that does not count the pauses of its engine."""
ReplyKey = tuple[str, int]
"""A wire and the hash of a request's body."""
NewSample = Literal["first", "conversation", "tools", "rewritten", "branch", "template"]
"""Why a call begins a sample: it is the first one; a conversation of its own; one with other tools; one that the
harness wrote again; a second continuation of the same turn; one whose earlier turns the chat template writes again."""

REPLIES: Final = 16
"""How many replies are kept for clients that ask again."""
ENDED: Final = "The episode has ended."
"""The reply to a model call after the end of the episode."""


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """The bounds of each episode at the gateway."""

    max_calls: int = 200
    """The most model calls of one episode; the next one is refused and ends the episode with `turn_limit`."""
    max_tokens: int = 512
    """The most tokens of one turn; a harness may ask for fewer."""
    context: int | None = None
    """The most tokens of prompt and turn together; the engine's own limit when None."""
    call_seconds: float | None = 300.0
    """The most seconds of one call; a longer one is refused and ends the episode with `time_limit`."""
    body_bytes: int = 16 * 1024 * 1024
    """The most bytes of one request."""
    override: tuple[str, ...] = ()
    """Fields of requests that ask for a reply of another form (`stop`, `tool_choice`, `response_format`, …) and are
    ignored instead of refused; the header `x-ludus-overridden` names them."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The record of one call."""

    number: int
    """Counted from 1, in the order in which the calls began."""
    wire: str
    """`chat`, `responses` or `anthropic`."""
    sample: int
    """The number of its training sample, counted from 0."""
    start: int
    """The position of its first sampled token in the sample; the ids before it are the prompt."""
    generation: Generation
    """The sampled ids with their log-probabilities, and the versions of the weights."""
    entries: tuple[Entry, ...]
    """The messages of the request that the conversation did not have before."""
    turn: ParsedTurn
    """The turn as it was sampled and parsed, with the ids of calls that the harness got."""
    began: float
    """When it began, by `time.perf_counter`."""
    seconds: float
    overridden: tuple[str, ...] = ()
    """Fields of the request that were not followed."""
    tools: bool = False
    """Whether the policy had tools."""
    begins: NewSample | None = None
    """Why the call begins a new sample; None if it continues one."""
    rewritten: bool = False
    """Whether the harness wrote a turn of the policy in other words, and its calls' ids showed which turn it was."""


@dataclass(slots=True, eq=False)
class _Place:
    """A conversation that ends with a turn that the policy sampled."""

    tools: tuple[ToolSpec, ...]
    keys: list[Key]
    messages: list[ChatMessage]
    prompt: Rendered
    """The prompt that the turn answered."""
    sample: int
    end: int
    """The number of the sample's ids up to the end of the turn."""
    turn: ParsedTurn
    cache: str
    """The name of the conversation at the engine."""
    continued: bool = False
    """Whether a call continues the sample from here."""


@dataclass(slots=True)
class _Prompt:
    ids: list[int]
    rendered: Rendered
    messages: list[ChatMessage]
    place: _Place | None
    """Where the call continues a sample; None if it begins a new one."""
    known: int
    """The number of the request's messages that are in the sample already."""
    begins: NewSample | None = None


@dataclass(slots=True, eq=False)
class EpisodeSession:
    """The model calls of one episode. `Gateway.open` makes it; close it when the episode has ended."""

    name: str
    """The episode's name at the engine."""
    key: str = field(repr=False)
    """The unguessable key of the episode's base URL; also its API key."""
    engine: PolicyEngine
    renderer: Renderer
    limits: GatewayLimits
    seed: int = 0
    """The seed from which the seed of each call is derived."""
    temperature: float = 1.0
    """The sampling temperature; values other than 1 are for evaluation."""
    limit: TimeLimit = asyncio.timeout
    """Makes the time limit of a call."""
    responses: StoredResponses = field(default_factory=StoredResponses)
    """The responses that later requests may refer to."""
    replies: dict[ReplyKey, ModelReply] = field(default_factory=dict[ReplyKey, ModelReply])
    """The last replies, for requests that a client repeats because it has not got the reply."""
    ended: Callable[[], Awaitable[bool]] | None = None
    """Whether the environment has ended the episode; asked before each call that follows a reply. A call after
    the end is answered with a fixed text, and neither sampled nor recorded."""
    calls: list[ModelCall] = field(default_factory=list[ModelCall])
    """The calls that were answered, in the order in which they ended."""
    offered: set[str] = field(default_factory=set[str])
    """The names of the tools that the policy had in any call."""
    refused: list[Refusal] = field(default_factory=list[Refusal])
    """The calls that were refused."""
    last: ModelCall | Refusal | None = None
    """The last answer that a harness got."""
    unfit: ContextFull | None = None
    """The refusal of the harness's first prompt, if the context is too small for it: no episode can be played then."""
    parse_errors: int = 0
    """The number of turns in which a tool call could not be parsed."""
    error: Exception | None = None
    """The exception of the engine or the chat template that ended the session."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when no further call will be answered."""
    used_at: float = field(default_factory=time.perf_counter)
    """When a call last began or ended."""
    running: int = 0
    """The number of calls that are being answered."""
    _started: int = 0
    _call_ids: int = 0
    _stopped: Stop | None = None
    _overflowed: bool = False
    _caches: set[str] = field(default_factory=set[str])
    """The names of the conversations at the engine."""
    _samples: list[SampleRecorder] = field(default_factory=list[SampleRecorder])
    _places: dict[int, _Place] = field(default_factory=dict[int, _Place])
    _turns: dict[Key, ParsedTurn] = field(default_factory=dict[Key, ParsedTurn])
    _by_ids: dict[tuple[str, ...], tuple[Key, tuple[str, ...]]] = field(
        default_factory=dict[tuple[str, ...], tuple[Key, tuple[str, ...]]]
    )
    """The key of each turn with calls and the names of their tools, by the ids of the calls."""
    _names: dict[str, Called] = field(default_factory=dict[str, Called])
    """The calls that the policy made, by the gateway's ids."""

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What the engine saw and sampled. A sampled token is in exactly one of them; `turns` are places in `calls`."""
        return tuple(sample for recorder in self._samples for sample in recorder.samples)

    @property
    def stopped(self) -> Stop | None:
        """The limit that the calls have reached, if any: of calls, of time, or the context of the last one."""
        return self._stopped or ("context_limit" if self._overflowed else None)

    @property
    def cut(self) -> bool:
        """Whether the last turn was cut off at its maximum length."""
        return bool(self.calls) and self.calls[-1].turn.cut

    @property
    def repeated(self) -> int:
        """How many of the last calls asked for one and the same conversation, so that no reply was used."""
        calls = reversed(self.calls)
        last = next(calls, None)
        if last is None:
            return 0
        asked = (last.start, last.entries)
        return 1 + sum(1 for _ in takewhile(lambda call: (call.start, call.entries) == asked, calls))

    @property
    def context(self) -> int:
        """The most tokens of prompt and turn together."""
        return min(self.limits.context or self.engine.context, self.engine.context)

    @property
    def side_samples(self) -> frozenset[int]:
        """The samples that are no part of the play: without tools, never continued, and their words never used again.

        Agent programs ask for a title of the conversation, or whether the model answers at all. An episode in which no
        call had tools has none.
        """
        if not any(call.tools for call in self.calls):
            return frozenset()
        counts = Counter(call.sample for call in self.calls)
        return frozenset(
            call.sample
            for call in self.calls
            if counts[call.sample] == 1 and not call.tools and not self._comes_back(call)
        )

    @property
    def play_samples(self) -> tuple[Sample, ...]:
        """The samples without side calls."""
        side = self.side_samples
        return tuple(sample for number, sample in enumerate(self.samples) if number not in side)

    def _comes_back(self, call: ModelCall) -> bool:
        """Return whether the text of a reply is in a later request, such as a summary that replaces a conversation."""
        words = call.turn.message.strip()
        later = (entry for other in self.calls if other.began > call.began for entry in other.entries)
        return bool(words) and any(words in entry.text for entry in later)

    async def answer(self, request: ModelRequest, wire: str, accepted: Callable[[], None] = lambda: None) -> ModelReply:
        """Answer a model call.

        Args:
            request: the request.
            wire: the name of its wire.
            accepted: called when the prompt is accepted, and only the engine is waited for.

        Raises:
            Refusal: a limit, an impossible prompt, or an engine that failed.
        """
        self._check_open()
        self._started += 1
        self.running += 1
        self.last = None
        number, began = self._started, time.perf_counter()
        self.used_at = began
        try:
            return await self._answer(request, wire, number, began, accepted)
        finally:
            self.running -= 1
            self.used_at = time.perf_counter()

    async def count(self, request: ModelRequest) -> int:
        """Return the number of tokens of a request's prompt.

        Raises:
            Refusal: the chat template cannot render it.
        """
        return len((await self._prompted(request, self._keys(request.entries)[0])).ids)

    def keep(self, key: ReplyKey, reply: ModelReply) -> None:
        """Keep a reply for a client that asks again, because it has not got it."""
        self.replies[key] = reply
        if len(self.replies) > REPLIES:
            del self.replies[next(iter(self.replies))]

    def refuse(self, refusal: Refusal) -> None:
        """Record a request that was refused."""
        self.refused.append(refusal)
        if refusal.kind != "path":  # programs also ask for what a gateway lacks, which is no model call
            self.last = refusal

    def stop(self, reason: Stop | None = None) -> None:
        """Refuse all further calls, because a limit was reached or the episode has ended."""
        self._stopped = self._stopped or reason
        self.over.set()

    async def close(self) -> None:
        """Refuse all further calls and release the episode's caches in the engine."""
        self.stop()
        for cache in self._caches:
            await self.engine.forget(cache)

    # ── one call ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_open(self) -> None:
        if self.over.is_set():
            reason = f": {self._stopped}" if self._stopped else ""
            raise Refusal("ended", f"this episode has ended{reason}; no further model call is answered")
        if self._started >= self.limits.max_calls:
            self.stop("turn_limit")
            raise Refusal("limit", f"this episode has used all of its {self.limits.max_calls} model calls")

    async def _answer(
        self, request: ModelRequest, wire: str, number: int, began: float, accepted: Callable[[], None]
    ) -> ModelReply:
        if self.ended is not None and _follows_reply(request.entries) and await self.ended():
            return ModelReply(number, ENDED, (), "stop", 0, 0, -1)
        keys, rewritten = self._keys(request.entries)
        prompt = await self._prompted(request, keys)
        room = self.context - len(prompt.ids)
        if room < 1:
            raise self._full(request, len(prompt.ids))
        longest = min(self.limits.max_tokens, request.max_tokens or self.limits.max_tokens)
        if prompt.place is not None and prompt.place.continued:  # by another call, while this one was rendered
            prompt.place, prompt.begins = None, "branch"
        place = prompt.place
        if place is not None:
            place.continued = True
        cache = f"{self.name}/{number}" if place is None else place.cache
        self._caches.add(cache)
        accepted()
        try:
            generation = await self._generate(prompt.ids, min(room, longest), number, cache)
        except BaseException:
            if place is not None:
                place.continued = False
            raise
        self.offered |= {spec.name for spec in request.tools}
        turn = self._parsed(generation, request.tools)
        self._overflowed = turn.cut and room < longest
        reply, entry = self._reply(request, prompt, turn, generation, number)
        sample = len(self._samples) if place is None else place.sample
        if place is None:
            self._samples.append(SampleRecorder())
        self._samples[sample].add(prompt.ids, generation, len(self.calls))
        end = len(prompt.ids) + len(generation.ids)
        key = assistant_key(entry)
        new = _Place(
            request.tools, [*keys, key], [*prompt.messages, *self.renderer.messages([turn])], prompt.rendered, sample,
            end, turn, cache,
        )  # fmt: skip
        self._places[_digests(request.tools, new.keys)[-1]] = new
        self._turns[key] = turn
        if entry.calls:
            ids, tools = tuple(call.call_id for call in entry.calls), tuple(call.tool for call in entry.calls)
            self._by_ids[ids] = (key, tools)
        seconds = time.perf_counter() - began
        call = ModelCall(
            number, wire, sample, len(prompt.ids), generation, request.entries[prompt.known :], turn, began, seconds,
            request.overridden, bool(request.tools), prompt.begins, rewritten,
        )  # fmt: skip
        self.calls.append(call)
        self.last = call
        return reply

    def _full(self, request: ModelRequest, tokens: int) -> ContextFull:
        """Return the refusal of a prompt that leaves no room, and note whether it is the harness's first one."""
        self._overflowed = True
        refusal = ContextFull(tokens, self.context)
        if not any(call.tools or not request.tools for call in self.calls):
            self.unfit = self.unfit or refusal
        return refusal

    def prefilled(self, entries: Sequence[Entry]) -> bool:
        """Return whether a conversation ends with words of the assistant that the policy has not sampled."""
        last = entries[-1]
        if not isinstance(last, AssistantEntry) or last.calls:
            return False
        return self._keys(entries)[0][-1] not in self._turns

    async def _generate(self, ids: list[int], max_tokens: int, number: int, cache: str) -> Generation:
        sampling = Sampling(max_tokens=max_tokens, stop=self.renderer.stop, temperature=self.temperature)
        digest = hashlib.blake2b(f"{self.seed}/{number - 1}".encode(), digest_size=8).digest()
        seed = int.from_bytes(digest, "big") >> 1  # engines use signed 64-bit seeds
        limit: asyncio.Timeout | None = None
        try:
            async with self.limit(self.limits.call_seconds) as limit:
                return await self.engine.generate(ids, sampling, seed=seed, session=cache)
        except TimeoutError as error:
            if limit is None or not limit.expired():
                raise self.fail(error) from error
            self.stop("time_limit")
            seconds = f"{self.limits.call_seconds:g}"
            raise Refusal("time", f"the call took longer than {seconds} s, so the episode has ended") from None
        except Exception as error:
            raise self.fail(error) from error

    def fail(self, error: Exception) -> Refusal:
        """Keep an error that is not the harness's, end the session, and return the refusal for the open call."""
        self.error = self.error or error
        self.stop()
        return Refusal(
            "engine", "the engine or the gateway failed, so the episode has ended; the trainer has the reason"
        )

    # ── the prompt ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _keys(self, entries: Sequence[Entry]) -> tuple[list[Key], bool]:
        """Return the keys of a conversation, and whether the harness wrote a turn of the policy in other words.

        Some drop the text next to a call, or repair its arguments. The gateway's ids of the calls tell which turn it
        was, and the words that were sampled stay in the conversation.
        """
        keys, rewritten = keys_of(entries), False
        for number, entry in enumerate(entries):
            if not isinstance(entry, AssistantEntry) or not entry.calls:
                continue
            turn = self._by_ids.get(tuple(call.call_id for call in entry.calls))
            if turn is not None and turn[0] != keys[number] and turn[1] == tuple(call.tool for call in entry.calls):
                keys[number], rewritten = turn[0], True
        return keys, rewritten

    async def _prompted(self, request: ModelRequest, keys: list[Key]) -> _Prompt:
        """Return the prompt of a call. A template that exceeds its bounds ends the session.

        Raises:
            Refusal: the chat template cannot render the conversation.
        """
        try:
            return await self.renderer.run(self._prompt, request, keys)
        except TemplateExceeded as error:
            raise self.fail(error) from error
        except RenderingError as error:
            # Once the policy has spoken, its own words may be what cannot be rendered.
            raise Refusal("content" if self.calls else "invalid", str(error), param="messages") from error

    def _prompt(self, request: ModelRequest, keys: list[Key]) -> _Prompt:
        """Return the prompt of a call.

        Raises:
            RenderingError: the chat template cannot render the conversation.
        """
        place = self._place(request.tools, keys)
        known = len(place.keys) if place is not None else 0
        begins: NewSample | None = None
        if place is None:
            messages = self._messages(request.entries, keys, 0)
            rendered = self.renderer.rendered(messages, request.tools)
            begins = self._cause(keys)
        else:
            new = self._messages(request.entries, keys, known)
            messages = [*place.messages, *new]
            rendered = self.renderer.continued(place.prompt, messages, len(new) + 1, request.tools)
            seen = self._samples[place.sample].ids[: place.end]
            ids = self.renderer.extend(place.prompt.text, place.messages[-1], rendered.text, seen)
            begins = "template" if ids is None else "branch" if place.continued else None
            if ids is not None:
                return _Prompt(ids, rendered, messages, None if place.continued else place, known, begins)
        return _Prompt(self.renderer.encode(rendered.text), rendered, messages, None, known, begins)

    def _cause(self, keys: list[Key]) -> NewSample:
        """Return why a conversation continues none of the recorded ones."""
        if not self._places:
            return "first"
        places = self._places.values()
        if any(place.keys == keys[: len(place.keys)] for place in places):
            return "tools"
        return "rewritten" if any(place.keys[0] == keys[0] for place in places) else "conversation"

    def _place(self, tools: tuple[ToolSpec, ...], keys: list[Key]) -> _Place | None:
        """Return the longest recorded conversation with which a request begins."""
        if not self._places:
            return None
        digests = _digests(tools, keys)
        for end in range(len(keys), 0, -1):
            place = self._places.get(digests[end])
            if place is not None and place.keys == keys[:end] and place.tools == tools:
                return place
        return None

    def _messages(self, entries: Sequence[Entry], keys: list[Key], known: int) -> list[ChatMessage]:
        """Return the messages of the entries after the first `known` ones, for the template."""
        own = self._own_ids(entries, keys, known)
        messages: list[ChatMessage] = []
        part: list[Item | ParsedTurn] = []
        for entry, key in zip(entries[known:], keys[known:], strict=True):
            if isinstance(entry, AssistantEntry):
                # The renderer takes neighbors for one turn, so each turn of the assistant gets a part of its own.
                messages += self.renderer.messages(part, self._names, start=known == 0 and not messages)
                turn = self._turns.get(key)
                messages += self.renderer.messages([turn] if turn is not None else _items(entry))
                part = []
            elif isinstance(entry, OutputEntry):
                call_id = own.get(entry.call_id, entry.call_id)
                part.append(OutputItem(call_id, (TextBlock(text=entry.text),), entry.error))
            else:
                part.append(text_message(entry.role, entry.text))
        return messages + self.renderer.messages(part, self._names, start=known == 0 and not messages)

    def _own_ids(self, entries: Sequence[Entry], keys: list[Key], known: int) -> dict[str, str]:
        """Return the gateway's id of each call in a request, by the id that the harness gave it."""
        outputs = [entry.call_id for entry in entries[known:] if isinstance(entry, OutputEntry)]
        if all(call_id in self._names for call_id in outputs):
            return {}
        own: dict[str, str] = {}
        for entry, key in zip(entries, keys, strict=True):
            if isinstance(entry, AssistantEntry):
                turn = self._turns.get(key)
                shown = [item.call_id for item in turn.items if isinstance(item, CallItem)] if turn is not None else []
                for call, call_id in zip(entry.calls, shown, strict=False):
                    own[call.call_id] = call_id
        return own

    # ── the reply ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _parsed(self, generation: Generation, tools: Sequence[ToolSpec]) -> ParsedTurn:
        """Parse a turn and give its calls ids that are unique in the episode."""
        turn = self.renderer.parse(generation.ids, tools)
        self.parse_errors += turn.error is not None
        items: list[Item] = []
        for item in turn.items:
            if isinstance(item, CallItem):
                self._call_ids += 1
                item = CallItem(f"call_{self._call_ids}", item.call)
            items.append(item)
        turn = replace(turn, items=tuple(items))
        self._names |= turn.called
        return turn

    def _reply(
        self, request: ModelRequest, prompt: _Prompt, turn: ParsedTurn, generation: Generation, number: int
    ) -> tuple[ModelReply, AssistantEntry]:
        """Return the reply, and the turn as the harness will send it back.

        A call whose arguments are not JSON is passed on if the wire can carry it and its tool exists. Otherwise the
        harness gets the turn as text.
        """
        tools = {spec.name for spec in request.tools}
        calls = [item for item in turn.items if isinstance(item, CallItem)]
        broken = [item.call for item in calls if isinstance(item.call, MalformedCall)]
        message, shown = turn.message, tuple(call_text(item.call_id, item.call) for item in calls)
        if any(not request.malformed or call.tool not in tools for call in broken):
            message, shown = turn.text, ()
        entry = AssistantEntry(message, shown)
        reply = ModelReply(
            number=number,
            text=message,
            calls=shown,
            finish="length" if generation.finish == "length" else "calls" if shown else "stop",
            input_tokens=len(prompt.ids),
            output_tokens=len(generation.ids),
            version=generation.versions[-1] if generation.versions else -1,
        )
        return reply, entry


def _digests(tools: tuple[ToolSpec, ...], keys: Sequence[Key]) -> list[int]:
    """Return one number for each beginning of a conversation; equal conversations have equal numbers."""
    digests: Final[list[int]] = [hash(tuple(spec.name for spec in tools))]
    for key in keys:
        digests.append(hash((digests[-1], key)))
    return digests


def _follows_reply(entries: Sequence[Entry]) -> bool:
    """Return whether something came after a turn of the assistant: the output of a tool, or a text that may be one."""
    return not isinstance(entries[-1], AssistantEntry) and any(isinstance(entry, AssistantEntry) for entry in entries)


def _items(entry: AssistantEntry) -> list[Item]:
    """Return a turn that the policy did not sample, or that the harness rewrote."""
    items: list[Item] = [text_message("assistant", entry.text)] if entry.text or not entry.calls else []
    return items + [_call(call) for call in entry.calls]


def _call(call: CallText) -> Item:
    return CallItem(call.call_id, parse_arguments(call.tool, call.arguments))
