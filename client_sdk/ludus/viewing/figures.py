"""Which metrics of a training run are drawn together in the trainer's report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple


class Figure(NamedTuple):
    """One chart with one or more curves."""

    title: str
    about: str
    metrics: Sequence[str]
    """Patterns of the metrics' names; the first group of a match is the curve's label in the legend."""
    stacked: bool = False
    """Whether the curves are parts of a whole."""


FIRST: Final = (
    Figure("Reward", "Mean of training episodes, and of held-out tasks with the 95 % interval.",
           ["reward/(mean)", "evaluation/(.+)(?<!/persistent)/mean"]),
    Figure("Entropy", "Of the policy, nats per token. Near 0 it no longer explores.", ["loss/(entropy)"]),
    Figure("Length", "Tokens that the policy sampled per episode.", ["rollout/(tokens)"]),
    Figure("Episodes lost", "Share that failed (not trained on), and share that a limit ended.",
           ["rollout/(failed|truncated)"]),
)  # fmt: skip
"""The charts that a reader sees first."""

FIGURES: Final = (
    *FIRST,
    Figure("Reward by environment", "Mean of scored episodes, those of dropped groups too.", ["reward/(?!std$)(.+)"]),
    Figure("Shares of the mix", "Of the next groups, by source.", ["mix/(.+)/share"], stacked=True),
    Figure("Pass rates of the mix", "Moving average of a source's newest groups.", ["mix/(.+)/pass_rate"]),
    Figure("Learning progress", "Of each source of the mix, beyond noise.", ["mix/(.+)/progress"]),
    Figure("Held-out matches won", "By opponent, with the 95 % interval.", ["evaluation/(.+)/won"]),
    Figure("Training matches won", "By opponent; the snapshots are one.", ["self_play/(.+)/won"]),
    Figure("Points against the pool", "By snapshot: 1 for a win, 1/2 for a draw.", ["self_play/points/(.+)"]),
    Figure(
        "Return of chains",
        "Sum of the rewards of a chain's tasks; held-out ones with the 95 % interval.",
        ["chains/(.+)/return", "evaluation/(.+)/return"],
    ),
    Figure("Reward by task of a chain", "Mean reward of the n-th task.", [r"chains/(.+/task_\d+)"]),
    Figure(
        "Chains played again",
        "Chains that broke, and chains that kept others waiting.",
        ["chains/(.+/(?:replayed|cut))"],
    ),
    Figure("Reward components", "Mean of each component over scored episodes.", ["component/(.+)"]),
    Figure("Reward by difficulty", "Mean reward of tasks of each difficulty.", ["difficulty/(.+)"]),
    Figure("Turns", "Of the policy, per episode.", ["rollout/(turns)"]),
    Figure("Ends", "Why the episodes ended.", ["ends/(.+)"], stacked=True),
    Figure("Unreadable calls", "Tool calls that could not be read, per episode.", ["rollout/(parse_errors)"]),
    Figure("Dropped groups", "Failed, or with equal rewards; others were run instead.", ["rollout/dropped_(.+)"]),
    Figure("Gradient = 0", "1 where a step learned nothing.", ["loss/(zero_gradient)"]),
    Figure("Gradient norm", "Before clipping.", ["loss/(gradient_norm)"]),
    Figure("Staleness", "Age of the weights that sampled, in optimizer steps.", ["rollout/staleness_(.+)"]),
    Figure("k3(μ‖π)", "Between the policy that sampled and the one that learns.", ["loss/(mismatch_k3)"]),
    Figure("Clipped and masked", "Share of tokens: gradient clipped, left out.", ["loss/(clipped|masked)"]),
    Figure("Throughput", "Tokens per second.", ["throughput/(trained|sampled)_tokens"]),
    Figure("Time", "Where the seconds of a step go.", ["time/(wait|update|sync|rest)"], stacked=True),
)
"""All charts of our trainer's metrics, in order. Other metrics that change follow, each in a chart of its own."""


def labels_of(figure: Figure, names: Iterable[str]) -> dict[str, str]:
    """Return the metrics that belong into a chart: name → label in its legend, in the order of the names."""
    found: dict[str, str] = {}
    for name in names:
        match = next(filter(None, (re.fullmatch(pattern, name) for pattern in figure.metrics)), None)
        if match:
            found[name] = f"held-out {match[1]}" if name.startswith("evaluation/") else match[1]
    return found
