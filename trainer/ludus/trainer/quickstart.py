"""A run made from demonstrations alone, for `ludus train --tiny-from`: a tiny model, its tokenizer, and settings.

The model has half a million random weights, unless `model.tiny` sets another size, and a tokenizer trained on the
demonstrations' text, so that it learns an environment with few rules in minutes on a CPU. The demonstrations teach it
the form of a call; GRPO does the rest.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ludus.checks import imitation
from ludus.client.local_server import LocalServer
from ludus.protocol.errors import AuthoringError, InfrastructureFailed
from ludus.protocol.trajectory import Trajectory
from ludus.rendering import Renderer
from ludus.trainer.core.config import TinyConfig, TrainConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.settings import read_config
from ludus.trainer.core.trajectory_files import read_latest

LEARNED_FROM: Final = 200
"""The number of episodes whose text the tokenizer learns."""
ENOUGH: Final = 0.2
"""The warm-up ends when the policy earns this share of the best demonstration, because GRPO learns from there on."""
PRESET: Final = (
    "--steps=200", "--plateau=30", "--device=cpu",
    "--sft.steps=1000", "--sft.batch=32", "--sft.learning_rate=2e-3",
    "--rollouts.groups=32", "--rollouts.group_size=8", "--rollouts.staleness=0",
    "--rollouts.drop_zero_variance=false", "--rollouts.concurrency=128",
    "--engine.torch.slots=128", "--engine.torch.cache_tokens=131072",
    "--advantages.scale=batch",
    "--optimizer.learning_rate=5e-4", "--optimizer.warmup=3", "--optimizer.schedule=linear",
    "--optimizer.betas=[0.9, 0.99]", "--optimizer.tokens=8192", "--optimizer.minibatches=4",
    "--evaluation.every=10", "--evaluation.tasks=100", "--evaluation.samples=4", "--checkpoints.every=0",
)  # fmt: skip
"""Settings for such a model. A configuration file takes their place; values on the command line win."""


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """What files of demonstrations hold."""

    paths: tuple[Path, ...]
    environment: str | None
    """The environment of all episodes; None if a mix names the environments."""
    episodes: tuple[Trajectory, ...]
    """The scored episodes that have a turn of the policy."""
    remark: str | None = None
    """A message if the model cannot know what they call with."""

    @classmethod
    def read(cls, paths: Sequence[Path], *, mixed: bool = False) -> Demonstrations:
        """Read files and check that a policy can learn from them.

        Args:
            paths: the files.
            mixed: whether the episodes may be of several environments.

        Raises:
            ConfigError: `read_latest` refuses a file; they have no scored episode, none that earned more than 0, or
                several environments.
        """
        everything: list[Trajectory] = []
        for path in paths:
            everything += read_latest(path)
        named = ", ".join(map(str, paths))
        scored = tuple(trajectory for trajectory in everything if trajectory.value is not None and trajectory.turns)
        if not scored:
            raise ConfigError(
                f"--tiny-from {named}: none of its {len(everything)} episodes has a reward and a turn of the policy; "
                "record others with `ludus demos`"
            )
        names = sorted({trajectory.environment for trajectory in scored})
        if len(names) > 1 and not mixed:
            raise ConfigError(
                f"--tiny-from {named} has episodes of {', '.join(names)}; keep those of one environment, or name a mix "
                "of them with --mix"
            )
        if max(trajectory.value or 0.0 for trajectory in scored) <= 0:
            raise ConfigError(
                f"--tiny-from {named}: none of its {len(scored)} episodes earned more than 0. Demonstrations must "
                "sometimes win, because GRPO learns only from differences: record some with the environment's oracle "
                "or a better policy (`ludus demos`), or make the tasks easier"
            )
        collected = imitation.Demonstrations()
        for trajectory in scored:
            collected.add(trajectory)
        remark = collected.remark()
        return cls(tuple(paths), None if mixed else names[0], scored, remark and f"--tiny-from {named}: {remark}")


def prepare(
    demonstrations: Demonstrations, file: Path | None, overrides: Sequence[str], mixed: Mapping[str, Any] | None = None
) -> TrainConfig:
    """Make the tiny model in the run's folder (`tiny-model`), unless it is there, and return the run's configuration.

    Args:
        demonstrations: the episodes to learn from.
        file: a configuration file to use instead of `PRESET`.
        overrides: `--section.key=value`; they win.
        mixed: the tables of a mix file, see `read_config`.

    Raises:
        ConfigError: the configuration or the demonstrations cannot be used.
    """
    from ludus.trainer.learning.sft import render  # here, because the checks before it need no torch

    path = ", ".join(map(str, demonstrations.paths))
    options = [] if demonstrations.environment is None else [f"--environments.0.name={demonstrations.environment}"]
    options += [] if file else [*PRESET, f"--output=runs/{demonstrations.paths[0].stem}"]
    best = max(episode.value or 0.0 for episode in demonstrations.episodes)
    options += [] if file else [f"--sft.until={ENOUGH * best}"]
    options.append(f"--sft.demonstrations={json.dumps([str(source) for source in demonstrations.paths])}")
    config = read_config(file, [*options, *overrides], mixed)
    folder = config.output / "tiny-model"
    if not (folder / "config.json").exists():
        make_model(folder, demonstrations.episodes, config.seed, config.model.tiny)
    options.append(f"--model.path={folder}")
    renderer, longest, longest_episode = _renderer(folder), 0, 0
    for episode in demonstrations.episodes:  # many episodes take gigabytes as tokens, so they are not kept
        if (sample := render(episode, renderer)) is not None:
            longest_episode = max(longest_episode, len(sample.ids))
            longest = max(longest, *Counter(turn for turn in sample.turns if turn >= 0).values())
    if file is None:
        max_tokens = _round_up(longest * 3 // 2, 8)
        turns = 2 * max(len(episode.turns) for episode in demonstrations.episodes) + 2
        options += [f"--rollouts.max_tokens={max_tokens}", f"--rollouts.max_turns={turns}"]
        options.append(f"--rollouts.context={min(4096, _round_up(2 * longest_episode + max_tokens, 64))}")
    config = read_config(file, [*options, *overrides], mixed)
    if longest > config.rollouts.max_tokens:
        raise ConfigError(
            f"rollouts.max_tokens = {config.rollouts.max_tokens} does not fit a call: a turn in {path} takes "
            f"{longest} tokens of this model's tokenizer; set it to at least {longest}"
        )
    if longest_episode > config.rollouts.context:
        raise ConfigError(
            f"rollouts.context = {config.rollouts.context} does not fit an episode: one in {path} takes "
            f"{longest_episode} tokens of this model's tokenizer; set it to at least {longest_episode}"
        )
    return config


def make_model(folder: Path, episodes: Sequence[Trajectory], seed: int, size: TinyConfig | None = None) -> None:
    """Write a model of random weights, whose tokenizer has learned the text of such episodes."""
    from transformers.utils.logging import disable_progress_bar

    from ludus.trainer.core.tiny import make_tiny_model
    from ludus.trainer.learning.sft import render

    size = size or TinyConfig()
    disable_progress_bar()
    make_tiny_model(folder, seed=seed)
    renderer = _renderer(folder)
    plain = renderer.tokenizer
    rendered = (sample for episode in episodes if (sample := render(episode, renderer)) is not None)
    marks = re.compile("|".join(map(re.escape, [*plain.all_special_tokens, "<tool_call>", "</tool_call>"])))
    games = itertools.islice(rendered, LEARNED_FROM)
    texts = [part for game in games for part in marks.split(plain.decode(game.ids))]
    make_tiny_model(folder, texts=texts, hidden=size.hidden, layers=size.layers, heads=size.heads, seed=seed)


def _renderer(folder: Path) -> Renderer:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    return Renderer(tokenizer)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@contextlib.contextmanager
def serving(*targets: str) -> Iterator[str]:
    """Run `ludus serve` on a free port and yield its address; the server ends with the block or with this process.

    Raises:
        ConfigError: the server did not start; the message is its own.
    """
    try:
        server = LocalServer(targets)
    except (AuthoringError, InfrastructureFailed) as error:
        raise ConfigError(f"`ludus serve {' '.join(targets)}` did not start: {error.message}") from None
    try:
        yield server.url
    finally:
        server.close()
