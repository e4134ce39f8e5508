"""Token sequences exactly as an inference engine saw and sampled them, for the trainer and the gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Finish = Literal["stop", "length"]
"""Why generation ended: the model sampled a stop token (the last of the ids), or `max_tokens` was reached."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters of sampling. Training needs temperature 1 and the whole distribution, so that the learner's
    probabilities are those of the policy that sampled. Other temperatures are for evaluation."""

    max_tokens: int
    stop: tuple[int, ...]
    """Token ids that end the generation. The one that ended it is part of the result."""
    temperature: float = 1.0
    """The temperature; 0 takes the most probable token."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The sampled tokens. The three tuples have the same length."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural logarithms, under the sampling distribution (after temperature)."""
    versions: tuple[int, ...]
    """The version of the weights that sampled each token."""
    finish: Finish


@dataclass(frozen=True, slots=True)
class Sample:
    """One uninterrupted sequence of tokens as the engine saw it: a whole episode, unless its context was rewritten.

    All fields have the same length n.
    """

    ids: tuple[int, ...]
    """Token ids, prompt included."""
    mask: tuple[bool, ...]
    """Whether the policy sampled the token."""
    logprobs: tuple[float, ...]
    """The sampled tokens' log-probabilities under the policy that sampled them; 0.0 where `mask` is False."""
    versions: tuple[int, ...]
    """The version of the weights that sampled the token; -1 where `mask` is False."""
    turns: tuple[int, ...]
    """The policy's turn, counted from 0, in which the token was sampled; -1 where `mask` is False."""

    def __post_init__(self) -> None:
        lengths = {len(part) for part in (self.ids, self.mask, self.logprobs, self.versions, self.turns)}
        if len(lengths) != 1:
            raise ValueError(f"a sample's fields must have one length, not {sorted(lengths)}")

    @property
    def sampled(self) -> int:
        """The number of tokens that the policy sampled."""
        return sum(self.mask)


class SampleRecorder:
    """The record of what an engine saw. Prompts that extend each other are one sample."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        """The newest prompt and the tokens sampled after it."""
        self._sampled: list[tuple[int, Generation, int]] = []
        self._closed: list[Sample] = []

    def add(self, prompt: Sequence[int], generation: Generation, turn: int) -> None:
        """Record the answer to a prompt. A prompt that does not begin with `ids` begins a new sample."""
        if list(prompt[: len(self.ids)]) != self.ids:
            self._closed = list(self.samples)
            self._sampled = []
        self._sampled.append((len(prompt), generation, turn))
        self.ids = [*prompt, *generation.ids]

    def continued(self) -> SampleRecorder:
        """Return a record that goes on from here, in which no token until now counts as sampled."""
        record = SampleRecorder()
        record.ids = list(self.ids)
        return record

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples in order. A sampled token is in exactly one of them."""
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
