"""A mix with known learners instead of a policy: what its shares would do."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ludus.client.mix.mixer import Mixer, Source
from ludus.client.mix.policy import MixPolicy

Learner = Callable[[int], float]
"""From the number of groups of a source that were played, to its pass rate."""


def learning(groups: int, *, low: float = 0.0, high: float = 1.0) -> Learner:
    """Return a learner whose pass rate rises from `low` to `high` within that many groups of its source."""
    return lambda played: low + (high - low) * min(1.0, played / groups)


@dataclass(frozen=True, slots=True)
class Moment:
    """The mix after some groups."""

    groups: int
    """Groups played so far."""
    shares: dict[str, float]
    pass_rates: dict[str, float | None]
    stage: int


def simulate(
    sources: Sequence[Source],
    policy: MixPolicy,
    learners: Mapping[str, Learner],
    *,
    groups: int,
    group_size: int = 8,
    lag: int = 16,
    seed: int = 0,
    every: int = 1,
) -> list[Moment]:
    """Draw groups with learners of known pass rates, and return the mix after every `every` groups and at the end."""
    mixer, rng = Mixer(sources, policy, lag=lag), random.Random(seed)
    played = dict.fromkeys(learners, 0)
    moments = [_moment(mixer, 0)]
    for number in range(groups):
        label = mixer.choose(number, rng)
        rate = learners[label](played[label])
        played[label] += 1
        passes = sum(rng.random() < rate for _ in range(group_size))
        mixer.report(number, label, passes=passes, scored=group_size)
        if (number + 1) % every == 0 or number + 1 == groups:
            moments.append(_moment(mixer, number + 1))
    return moments


def _moment(mixer: Mixer, groups: int) -> Moment:
    rates = {label: record.pass_rate for label, record in mixer.records.items()}
    return Moment(groups, mixer.shares(), rates, mixer.stage)
