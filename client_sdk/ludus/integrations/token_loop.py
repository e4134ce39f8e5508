"""Play an episode with sampled tokens, for trainers that learn from token ids.

How this works:

* `ChatTokens` makes tokens of messages with the model's chat template. `Sample` is the trainer's own way to sample.
* A `Tape` holds the ids of the prompt and of the response. What was sampled is kept as it was sampled; text is decoded
  from it to find the tool calls, and is never encoded again.
* The mask is 1 for sampled tokens and 0 for observations, whose logprobs are 0.0. All three lists have one length.
* The response never exceeds its budget: observations that do not fit end the episode, which keeps what it has earned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ludus.client import Driver, EpisodeOutcome, TaskAddress
from ludus.client.formats import FormatName
from ludus.integrations.unscored import not_started, play_again
from ludus.protocol.errors import LudusError, Unsupported
from ludus.protocol.tool_calls import MARKS, detect_format

_SAID: Final = "ludus-said-this"
"""The text of an assistant's message, in order to find what a chat template puts after it."""


class Sampled(NamedTuple):
    """What the model said in one turn."""

    ids: Sequence[int]
    logprobs: Sequence[float] | None
    """The logprob of each id; None if the engine gives none."""


@dataclass(slots=True)
class Tape:
    """The tokens of one episode."""

    prompt: list[int] = field(default_factory=list)
    """The ids of the prompt."""
    ids: list[int] = field(default_factory=list)
    """The ids of the response: sampled tokens and observations."""
    mask: list[int] = field(default_factory=list)
    """1 for each sampled token, 0 for each token of an observation."""
    logprobs: list[float] = field(default_factory=list)
    """The logprob of each sampled token; 0.0 for observations, and if the engine gives none."""
    turns: list[tuple[int, int]] = field(default_factory=list)
    """The start and the end of each turn of the model in `ids`."""

    def sampled(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> None:
        """Add what the model said.

        Raises:
            ValueError: there are more or fewer logprobs than ids.
        """
        if logprobs is not None and len(logprobs) != len(ids):
            raise ValueError(f"the engine gave {len(logprobs)} logprobs for {len(ids)} tokens")
        self.turns.append((len(self.ids), len(self.ids) + len(ids)))
        self._add(ids, 1, [0.0] * len(ids) if logprobs is None else logprobs)

    def observed(self, ids: Sequence[int]) -> None:
        """Add an observation."""
        self._add(ids, 0, [0.0] * len(ids))

    def hide(self, filler: int) -> None:
        """Mask all tokens, because the episode is unscored; a tape without tokens gets `filler`, which is masked."""
        if not self.ids:
            self._add([filler], 0, [0.0])
        self.mask = [0] * len(self.ids)

    def _add(self, ids: Sequence[int], mask: int, logprobs: Sequence[float]) -> None:
        self.ids += ids
        self.mask += [mask] * len(ids)
        self.logprobs += logprobs


Sample = Callable[[list[int], int], Awaitable[Sampled]]
"""Samples after the ids of the conversation so far, at most as many tokens as the second argument says. A message that
fills this room without a token that ends the turn was cut off: it is no complete message, and ends the episode."""


@dataclass(frozen=True, slots=True)
class ChatTokens:
    """A model's tokenizer with its chat template."""

    tokenizer: Any
    """A tokenizer of transformers."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of its `apply_chat_template`, such as `enable_thinking`."""

    def prompt(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the ids of a prompt, up to where the model continues."""
        return self._encode(self._render(messages, tools=list(tools) or None))

    def observation(self, messages: Sequence[Mapping[str, Any]], said: Sequence[int]) -> list[int]:
        """Return the ids of tool messages after sampled ids, up to where the model continues.

        If the model has sampled the token that closes its turn, it is not repeated.
        """
        before = [{"role": "user", "content": "."}, {"role": "assistant", "content": _SAID}]
        after = self._render([*before, *messages]).rpartition(_SAID)[2]
        closing = self.tokenizer.decode(list(said[-1:]), skip_special_tokens=False)
        return self._encode(after.removeprefix(closing))

    def said(self, ids: Sequence[int]) -> str:
        """Return the text of sampled ids with the marks of tool calls, and without the special tokens at its end."""
        kept = list(ids)
        while kept and self.ends(kept):
            kept.pop()
        text: str = self.tokenizer.decode(kept, skip_special_tokens=False)
        return text

    def ends(self, ids: Sequence[int]) -> bool:
        """Return whether the last id ends the model's turn, as special tokens do that are no mark of a tool call."""
        return ids[-1] in self.tokenizer.all_special_ids and self.tokenizer.decode([ids[-1]]) not in MARKS

    def form(self) -> FormatName:
        """Return the form in which the model writes tool calls, which its chat template shows.

        Raises:
            Unsupported: the template shows none that is known.
        """
        found = detect_format(str(self.tokenizer.chat_template))
        if found is None:
            raise Unsupported("the chat template does not show how the model writes tool calls: give the form")
        return found

    def filler(self) -> int:
        """Return the id of a token for an episode without any."""
        found = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if found is None else found)

    def _render(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> str:
        options = {**self.options, **more, "add_generation_prompt": True, "tokenize": False}
        text: str = self.tokenizer.apply_chat_template(list(messages), **options)
        return text

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


async def play_tokens(
    address: TaskAddress,
    chat: ChatTokens,
    sample: Sample,
    adapter: str,
    *,
    prompt_room: int,
    room: int,
    total: int | None = None,
    turn_room: int | None = None,
    turns: int | None = None,
    form: FormatName = "hermes",
) -> tuple[Tape, EpisodeOutcome]:
    """Play an episode, and play it again if the infrastructure failed; see `play_again`.

    Args:
        address: the task.
        chat: makes tokens of messages.
        sample: samples them.
        adapter: the name under which unscored episodes are counted.
        prompt_room: how many tokens the prompt may have.
        room: how many tokens the response may have, observations included.
        total: how many tokens the prompt and the response may have together; no further limit when None.
        turn_room: how many tokens one message of the model may have; no further limit when None.
        turns: how many turns the model may have; as many as fit when None.
        form: the form of tool calls in sampled text.

    Returns:
        The tokens of the last attempt, and its outcome.

    Raises:
        RequestError: every episode would fail like this, such as with a refused token or an unknown task.
        ValueError: the prompt is too long. It is never cut, because the beginning has the tools and the rules.
    """
    tape = Tape()

    async def play() -> EpisodeOutcome:
        nonlocal tape
        tape = Tape()
        try:
            async with address.drive(form=form) as driver:
                tape.prompt = chat.prompt(driver.messages, driver.tools)
                if len(tape.prompt) > prompt_room:
                    raise ValueError(
                        f"the prompt of task {address.task} has {len(tape.prompt)} tokens with its tools, and the "
                        f"trainer's limit is {prompt_room}: raise the limit"
                    )
                most = room if total is None else min(room, total - len(tape.prompt))
                return await _play(driver, chat, sample, tape, most, turn_room or most, turns)
        except LudusError as error:
            return not_started(error)

    outcome = await play_again(play, adapter)
    return tape, outcome


async def _play(
    driver: Driver, chat: ChatTokens, sample: Sample, tape: Tape, room: int, turn_room: int, turns: int | None
) -> EpisodeOutcome:
    while turns is None or len(tape.turns) < turns:
        left = min(room - len(tape.ids), turn_room)
        said = await sample(tape.prompt + tape.ids, left)
        tape.sampled(said.ids, said.logprobs)
        if len(said.ids) >= left and not chat.ends(said.ids):
            return await driver.finish("context_limit")
        observations, done = await driver.act(chat.said(said.ids))
        if done:
            break
        new = chat.observation(observations, said.ids)
        if len(tape.ids) + len(new) >= room:
            return await driver.finish("context_limit")
        tape.observed(new)
    return await driver.finish("turn_limit")
