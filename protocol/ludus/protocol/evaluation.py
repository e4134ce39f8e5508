"""The results of `ludus eval`: one JSON document with every cell of models × environments × splits.

Version 0.1 of the format. A reader refuses unknown fields and unknown versions; a change of meaning gets a new version.
This module holds its types and rules. The client writes the file, and viewers and hubs read it.

All intervals are 95 %. Every task has the same weight in every mean, and standard errors are clustered by task, because
episodes of one task are not independent (Miller 2024, "Adding Error Bars to Evals", https://arxiv.org/abs/2411.00640).
Episodes without a reward count in no mean and are counted separately.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ludus.protocol.errors import ParseError
from ludus.protocol.messages import describe_invalid
from ludus.protocol.text import truncate

__all__ = ["Cell", "Estimate", "EvaluationResults", "Interval", "Model", "TaskFigures"]


EVALUATION_FORMAT: Final = "ludus.evaluation/0.1"

Name = Annotated[str, Field(min_length=1, max_length=300)]
Text = Annotated[str, Field(max_length=4_000)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
Interval = tuple[float, float]
"""The lower and the upper end."""

Probe = Literal["no-tools", "truncated-prompt", "no-tools-truncated-prompt"]
"""A contamination check: the tasks are played without tools, with a cut prompt, or both."""


def _finite(value: Any) -> Any:
    """Refuse numbers that JSON cannot hold, which the reader of JSON takes from `Infinity` and `1e999`."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number of JSON")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _finite(inner)
    return value


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Estimate(_Part):
    """A mean over tasks."""

    value: float
    error: Amount | None
    """The standard error, clustered by task; null with fewer than two tasks."""
    interval: Interval | None
    """Null if there are too few tasks, or if equal values show nothing about the spread."""
    tasks: Count
    """The number of tasks in the mean."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_interval(self.interval)
        return self


class Difference(_Part):
    """The mean difference between two runs of the same tasks, paired by task."""

    value: float
    error: Amount | None
    """The standard error of the paired difference; null with fewer than two tasks."""
    interval: Interval | None
    """Null if there are fewer than two tasks, or if all tasks differ by the same amount."""
    p: Share | None
    """The two-sided p-value of a difference of 0; null with fewer than two tasks."""
    tasks: Count
    """The number of tasks that both runs have."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_interval(self.interval)
        return self


class EpisodeFigures(_Part):
    """One episode."""

    sample: Count
    """The number of the episode among those of its task, counted from 0."""
    seed: int | None
    reward: float | None
    """Null if the episode is unscored."""
    end: Text
    """The end reason, or what failed."""
    input_tokens: Count | None
    """As the provider reported them; null if it did not."""
    output_tokens: Count | None


class TaskFigures(_Part):
    """The episodes of one task."""

    task: Name
    index: int
    episodes: tuple[EpisodeFigures, ...]


class Tokens(_Part):
    """The tokens that the provider reported."""

    input: Count
    output: Count
    episodes: Count
    """The number of episodes that report their tokens."""
    unreported: Count
    """The number of episodes that do not. With any, `input` and `output` are a part of the whole."""


class CauseCount(_Part):
    """A reason why episodes have no reward."""

    kind: Text
    """What broke (environment, infrastructure, policy), or "unscored"."""
    message: str
    count: Count


class ComponentFigures(_Part):
    """A component of the reward, over the scored episodes that have it."""

    mean: float
    episodes: Count
    weight: float | None
    """Null if it differs between episodes."""


class ProbeFigures(_Part):
    """A contamination check of one cell. High rewards mean that the policy knows tasks that it could not see."""

    probe: Probe
    applies: bool
    """Whether the check can be made: without tools, only an environment that grades final messages gives rewards."""
    planned: Count
    episodes: Count
    scored: Count
    mean: Estimate | None
    success: Estimate | None
    difference: Difference | None
    """The reward of the check minus that of the cell, paired by task."""
    solved: tuple[Name, ...]
    """The tasks with a success in the check."""
    causes: tuple[CauseCount, ...]
    tokens: Tokens | None
    cost: Amount | None
    trajectories: Text
    """The file of the episodes, relative to the folder of the results."""


class Cell(_Part):
    """One model on one split of one environment."""

    model: Name
    """The name of the model in `models`."""
    environment: Name
    environment_version: Text
    split: Name
    seeded: bool
    """Whether the episodes had seeds; an environment that is not seedable has none."""
    problem: Text | None
    """Why the cell stopped early; null if it did not."""
    planned: Count
    """The number of episodes that belong to the cell."""
    episodes: Count
    """The number of episodes played so far; the others are missing, and no mean counts them."""
    scored: Count
    failed: dict[str, Count]
    """The number of failed episodes, by the part that broke."""
    unscored: Count
    """The number of episodes that did not fail and have no reward."""
    causes: tuple[CauseCount, ...]
    success_at: float
    """The lowest reward that counts as a success."""
    reward_range: Interval | None
    mean: Estimate | None
    """The mean reward; null if no episode was scored."""
    success: Estimate | None
    """The share of successes."""
    pass_at: dict[int, Estimate]
    """pass@k by k: the probability of at least one success in k episodes of a task (Chen et al. 2021, unbiased). Tasks
    with fewer than k scored episodes are left out."""
    pass_hat: dict[int, Estimate]
    """pass^k by k: the probability that all k episodes of a task succeed."""
    components: dict[str, ComponentFigures]
    ends: dict[str, Count]
    """The number of episodes by how they ended."""
    steps: Amount | None
    """The mean number of steps of the scored episodes."""
    seconds: Amount
    """Seconds from the first start to the last end."""
    tokens: Tokens | None
    """Null if no episode reports its tokens."""
    cost: Amount | None
    """The price of all tokens; null without prices, or if an episode does not report its tokens."""
    tasks: tuple[TaskFigures, ...]
    """The tasks in order of their index."""
    probes: tuple[ProbeFigures, ...]
    trajectories: Text
    """The file of the episodes, relative to the folder of the results."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        episodes = [episode for task in self.tasks for episode in task.episodes]
        if len(episodes) != self.episodes:
            raise ValueError(f"episodes is {self.episodes}, and the tasks have {len(episodes)}")
        if (scored := sum(one.reward is not None for one in episodes)) != self.scored:
            raise ValueError(f"scored is {self.scored}, and {scored} episodes of the tasks have a reward")
        if self.scored + self.unscored + sum(self.failed.values()) != self.episodes:
            raise ValueError("scored, unscored and failed do not add up to episodes")
        if len({task.task for task in self.tasks}) != len(self.tasks):
            raise ValueError("a task occurs twice")
        return self

    @property
    def key(self) -> tuple[str, str, str]:
        """The model, environment and split."""
        return self.model, self.environment, self.split


class Model(_Part):
    """One model or other policy."""

    name: Name
    wire: Name
    """The provider's form (`openai`, `openai-responses`, `anthropic`, `google`), or `random`, `oracle`,
    `demonstrator`, `callable`."""
    model: Text
    """The name at the endpoint."""
    endpoint: Text | None
    """The address of the endpoint, without credentials."""
    options: Annotated[dict[str, Any], AfterValidator(_finite)]
    """Further fields of each request."""
    price_in: Amount | None
    """The price of a million input tokens, as the user gave it."""
    price_out: Amount | None


class Limits(_Part):
    """The limits of each episode."""

    max_turns: Count
    turn_seconds: Amount | None
    episode_seconds: Amount | None


class EvaluationResults(_Part):
    """The whole document."""

    format: Literal["ludus.evaluation/0.1"]
    ludus_version: Text
    started_at: AwareDatetime
    updated_at: AwareDatetime
    finished: bool
    """Whether every cell was played to its end."""
    seed: int
    """The seed of the run, from which each episode's seed is derived."""
    samples: Count
    """The number of episodes per task."""
    limits: Limits
    prompt_share: Share
    """The share of each prompt that a check with a cut prompt keeps."""
    models: tuple[Model, ...]
    cells: tuple[Cell, ...]

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        names = [model.name for model in self.models]
        keys = [cell.key for cell in self.cells]
        if len(set(names)) != len(names) or len(set(keys)) != len(keys):
            raise ValueError("a model or a cell occurs twice")
        if unknown := {cell.model for cell in self.cells} - set(names):
            raise ValueError(f"a cell names the model {min(unknown)!r}, which `models` does not have")
        return self

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each cell that is incomplete or has unscored episodes."""
        for cell in self.cells:
            name = f"{cell.model} on {cell.environment} / {cell.split}"
            if cell.problem is not None:
                yield f"{name} stopped early: {cell.problem}"
            if cell.episodes < cell.planned:
                yield f"{name}: {cell.planned - cell.episodes} of {cell.planned} episodes were not played"
            if missing := cell.episodes - cell.scored:
                yield f"{name}: {missing} of {cell.episodes} episodes have no reward and count in no mean"


def parse_evaluation(data: bytes | str, where: str) -> EvaluationResults:
    """Parse the text of a results file; `where` names the file in messages.

    Raises:
        ParseError: it is not a results file of this version; the message names the field and what is wrong.
    """
    try:
        return EvaluationResults.model_validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        what = f"{field}: {describe_invalid(first)}" if field else describe_invalid(first)
        raise ParseError(
            f"{where} has no results of `ludus eval` (format {EVALUATION_FORMAT}): {truncate(what, 400)}"
        ) from None


def _check_interval(interval: Interval | None) -> None:
    if interval is not None and interval[0] > interval[1]:
        raise ValueError(f"the interval {interval} has its ends in the wrong order")
