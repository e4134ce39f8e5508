"""Play an episode with sampled tokens, for trainers that learn from token ids.

How this works:

* `ludus.rendering` makes tokens of messages with the model's chat template. `Sample` is the trainer's way to sample.
* A `Tape` holds the ids of the prompt and of the response. What was sampled is kept as it was sampled; text is decoded
  from it to find the tool calls, and is never encoded again.
* The mask is 1 for sampled tokens and 0 for observations, whose logprobs are 0.0. All three lists have one length.
* The response never exceeds its budget: observations that do not fit end the episode, which keeps what it has earned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from ludus.client import Driver, EpisodeOutcome, TaskAddress, Turn
from ludus.integrations.unscored import not_started, play_again
from ludus.protocol.errors import LudusError
from ludus.protocol.trajectory import Stop
from ludus.rendering import Renderer, TextFormatName


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


_RENDERERS: Final[dict[tuple[int, str, str], Renderer]] = {}


def renderer_of(
    tokenizer: Any, tool_calls: Literal["auto"] | TextFormatName = "auto", options: Mapping[str, Any] | None = None
) -> Renderer:
    """Return the renderer of a tokenizer of transformers; the same one for the same arguments, because it caches.

    Args:
        tokenizer: the model's tokenizer, with its chat template.
        tool_calls: the form in which the model writes tool calls; `auto` detects it from the template.
        options: further arguments of the template, such as `enable_thinking`.

    Raises:
        RenderingError: see `Renderer`.
    """
    key = (id(tokenizer), tool_calls, repr(options))  # the renderer holds the tokenizer, so the id stays its own
    if key not in _RENDERERS:
        _RENDERERS[key] = Renderer(tokenizer, tool_calls=tool_calls, options=options)
    return _RENDERERS[key]


class TokenEpisode:
    """An episode in tokens: its prompt, and what follows each sampled turn. It samples nothing itself.

    Args:
        renderer: makes tokens of messages.
        driver: the episode.

    Raises:
        RenderingError: the chat template cannot render the conversation.
    """

    def __init__(self, renderer: Renderer, driver: Driver) -> None:
        self._renderer, self._driver = renderer, driver
        self.prompt: Final = renderer.prompt(driver.items, driver.episode.tools)
        """The ids of the prompt, up to where the model continues."""

    async def take(self, ids: Sequence[int]) -> list[int] | None:
        """Take a sampled turn.

        A call that was cut off is not made, and ends the episode, which keeps what it has earned. A message that was
        cut off is the final message all the same.

        Returns:
            The ids from the end of this turn up to where the model continues; None if the episode has ended.

        Raises:
            RenderingError: the chat template cannot render the observations.
            RequestError: every episode would fail like this.
        """
        turn = self._renderer.parse(ids, self._driver.episode.tools)
        before = len(self._driver.items)
        await self._driver.take(Turn(turn.items, stopped="context_limit" if turn.cut and turn.error else None))
        if self._driver.done:
            return None
        own = before + len(turn.items)
        said = replace(turn, items=tuple(self._driver.items[before:own]))  # the driver makes the calls' ids unique
        return self._renderer.between(said, self._driver.items[own:], ids)


async def play_tokens(
    address: TaskAddress,
    renderer: Renderer,
    sample: Sample,
    adapter: str,
    *,
    prompt_room: int,
    room: int,
    total: int | None = None,
    turn_room: int | None = None,
    turns: int | None = None,
) -> tuple[Tape, EpisodeOutcome]:
    """Play an episode, and play it again if the infrastructure failed; see `play_again`.

    Args:
        address: the task.
        renderer: makes tokens of messages; see `renderer_of`.
        sample: samples them.
        adapter: the name under which unscored episodes are counted.
        prompt_room: how many tokens the prompt may have.
        room: how many tokens the response may have, observations included.
        total: how many tokens the prompt and the response may have together; no further limit when None.
        turn_room: how many tokens one message of the model may have; no further limit when None.
        turns: how many turns the model may have; as many as fit when None.

    Returns:
        The tokens of the last attempt, and its outcome.

    Raises:
        RenderingError: the chat template cannot be used.
        RequestError: every episode would fail like this, such as with a refused token or an unknown task.
        ValueError: the prompt is too long. It is never cut, because the beginning has the tools and the rules.
    """
    tape = Tape()

    async def play() -> EpisodeOutcome:
        nonlocal tape
        tape = Tape()
        try:
            async with address.drive() as driver:
                episode = TokenEpisode(renderer, driver)
                tape.prompt = episode.prompt
                if len(tape.prompt) > prompt_room:
                    raise ValueError(
                        f"the prompt of task {address.task} has {len(tape.prompt)} tokens with its tools, and the "
                        f"trainer's limit is {prompt_room}: raise the limit"
                    )
                most = room if total is None else min(room, total - len(tape.prompt))
                turn_most = most if turn_room is None else turn_room
                stopped = await _play(episode, renderer.stop, sample, tape, most, turn_most, turns)
                return await driver.finish(stopped)
        except LudusError as error:
            return not_started(error)

    outcome = await play_again(play, adapter)
    return tape, outcome


async def _play(
    episode: TokenEpisode,
    stop: Sequence[int],
    sample: Sample,
    tape: Tape,
    room: int,
    turn_room: int,
    turns: int | None,
) -> Stop:
    """Sample until the episode has ended, or return why it must stop."""
    while turns is None or len(tape.turns) < turns:
        left = min(room - len(tape.ids), turn_room)
        said = await sample(tape.prompt + tape.ids, left)
        tape.sampled(said.ids, said.logprobs)
        if len(said.ids) >= left and said.ids[-1] not in stop:
            return "context_limit"
        new = await episode.take(said.ids)
        if new is None:
            break
        if len(tape.ids) + len(new) >= room:
            return "context_limit"
        tape.observed(new)
    return "turn_limit"
