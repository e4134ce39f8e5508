"""Supervised warm-up: maximum likelihood of demonstrations, or of the policy's own better episodes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from ludus.client.demonstrations import is_held_out
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.trajectory import Trajectory
from ludus.rendering import Renderer
from ludus.trainer.core.config_learning import SftConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.samples import RolloutGroup, Sample, TrainBatch, TrainSample
from ludus.trainer.core.trajectory_files import read_latest
from ludus.trainer.learning.losses import aggregation_weights

EpisodeSamples = tuple[Sample, ...]
"""All samples of one episode."""


def demonstrations(config: SftConfig, renderer: Renderer, *, context: int) -> list[EpisodeSamples]:
    """Return the recorded episodes that did not fail, have at least the reward `reward`, and are not longer than
    `context` tokens.

    Raises:
        ConfigError: a file cannot be read, or has no such episode.
    """
    chosen: list[EpisodeSamples] = []
    for path in config.demonstrations:
        episodes = read_episodes(path, "sft", held_out=config.held_out)
        good = [t for t in episodes if t.failure is None and _reaches(t.value, config.reward)]
        samples = [sample for t in good if (sample := render(t, renderer)) is not None and len(sample.ids) <= context]
        if not samples:
            raise ConfigError(
                f"sft.demonstrations: nothing to learn from in {path}: of its {len(episodes)} episodes {len(good)} did "
                f"not fail and reach sft.reward ({config.reward}), and none of those both has a turn of the policy and "
                f"fits into rollouts.context ({context} tokens)"
            )
        chosen += [(sample,) for sample in samples]
    return chosen


def own_episodes(groups: Iterable[RolloutGroup], reward: float | None) -> list[EpisodeSamples]:
    """Return the policy's own episodes of at least that reward, with the sampled token ids (rejection sampling)."""
    return [
        rollout.samples
        for group in groups
        for rollout in group.scored
        if rollout.sampled and _reaches(rollout.reward, reward)
    ]


def sft_batches(
    episodes: Sequence[EpisodeSamples], config: SftConfig, *, seed: int, done: int = 0
) -> Iterator[TrainBatch]:
    """Yield `steps` batches, without the first `done`, for `linear_objective`, which then is the mean negative
    log-likelihood of a batch's tokens.

    Raises:
        ConfigError: there are no episodes.
    """
    if not episodes:
        raise ConfigError(
            f"sft: no episode to learn from: none of the policy's own reached sft.reward ({config.reward}). Lower it, "
            f"play more with sft.own_groups, or give sft.demonstrations"
        )
    for chosen in islice(shuffled(len(episodes), config.batch, seed), done, config.steps):
        samples = [(number, sample) for number, index in enumerate(chosen) for sample in episodes[index]]
        counts = [sum(sample.sampled for sample in episodes[index]) for index in chosen]
        weights = aggregation_weights(counts, "token")
        yield TrainBatch(tuple(uniform(sample, 1.0, weights[number], number) for number, sample in samples))


def read_episodes(path: Path, table: str, *, held_out: bool) -> list[Trajectory]:
    """Return the last trajectory of each episode and policy in a file.

    Args:
        path: the file.
        table: the table of the configuration that names it, for messages.
        held_out: whether splits that are not for training are allowed.

    Raises:
        ConfigError: `read_latest` refuses the file, or it holds episodes of such a split.
    """
    episodes = read_latest(path)
    kept_back = Counter(episode.split for episode in episodes if is_held_out(episode.split))
    if kept_back and not held_out:
        splits = ", ".join(f"{count} of {split!r}" for split, count in sorted(kept_back.items()))
        raise ConfigError(
            f"{table}: {path} has episodes of splits that are not for training: {splits} among {len(episodes)}. "
            f"Learning from them would make evaluations on these splits meaningless. Leave them out (`ludus demos "
            f"--from {path}` keeps the others), or set {table}.held_out = true"
        )
    return episodes


def render(trajectory: Trajectory, renderer: Renderer) -> Sample | None:
    """Return a recorded conversation as tokens, with the policy's turns marked as sampled; None if it has no such turn.

    The probabilities with which they were sampled are unknown: `logprobs` are 0 and `versions` -1.
    """
    tools = [
        ToolSpec(name=tool["name"], description=tool.get("description") or "", input_schema=tool["parameters"])
        for tool in trajectory.tools
    ]
    ids, mask = renderer.conversation(trajectory.conversation, tools)
    turns, turn = [], -1
    for before, sampled in zip([False, *mask], mask, strict=False):
        turn += sampled and not before
        turns.append(turn if sampled else -1)
    sample = Sample(tuple(ids), tuple(mask), (0.0,) * len(ids), (-1,) * len(ids), tuple(turns))
    return sample if sample.sampled else None


def uniform(sample: Sample, advantage: float, weight: float, sequence: int) -> TrainSample:
    """Return a sample in which all sampled tokens have the same advantage and weight."""
    return TrainSample(
        sample,
        tuple(advantage if sampled else 0.0 for sampled in sample.mask),
        tuple(weight if sampled else 0.0 for sampled in sample.mask),
        sequence,
    )


def shuffled(count: int, size: int, seed: int) -> Iterator[list[int]]:
    """Yield batches of indices below `count` without end, in passes over all indices, each in a new random order. A
    batch is never larger than `count` and contains no index twice. An incomplete batch at the end of a pass is left
    out."""
    generator, size = random.Random(seed), min(size, count)
    while True:
        order = generator.sample(range(count), count)
        yield from (order[start : start + size] for start in range(0, count - size + 1, size))


def _reaches(value: float | None, least: float | None) -> bool:
    return least is None or (value is not None and value >= least)
