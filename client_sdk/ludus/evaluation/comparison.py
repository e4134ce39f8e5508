"""Comparison of two evaluations on the tasks that both have, paired by task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from ludus.client.summary import SUCCESS_TOLERANCE
from ludus.evaluation.statistics import holm, paired_difference
from ludus.protocol.errors import InvalidParams
from ludus.protocol.evaluation import Cell, Difference, EvaluationResults
from ludus.protocol.messages import did_you_mean

SHOWN_TASKS = 5


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class CellComparison(_Part):
    """Two cells of one environment and split."""

    environment: str
    split: str
    model_a: str
    model_b: str
    mean_a: float | None
    """The mean reward over the shared tasks; null without any."""
    mean_b: float | None
    reward: Difference | None
    """The mean reward of B minus that of A."""
    success: Difference | None
    """The success rate of B minus that of A; null also if the two count other rewards as a success."""
    p_adjusted: float | None
    """The p-value of `reward`, adjusted for the number of comparisons (Holm 1979)."""
    notes: tuple[str, ...]
    """What differs between the two runs besides the model."""


class Comparison(_Part):
    """The comparison of two evaluations, A and B."""

    format: Literal["ludus.comparison/0.1"] = "ludus.comparison/0.1"
    cells: tuple[CellComparison, ...]
    notes: tuple[str, ...]
    """What differs between the evaluations as a whole, and cells that only one of them has."""


def compare(
    a: EvaluationResults, b: EvaluationResults, *, model_a: str | None = None, model_b: str | None = None
) -> Comparison:
    """Compare the cells that two evaluations share.

    Args:
        a: the first evaluation, such as the baseline.
        b: the second one; it may be the same, to compare two of its models.
        model_a: the model of A. Without either name, models of the same name are compared, or the only ones.
        model_b: the model of B.

    Raises:
        InvalidParams: there is no such model, several models could be meant, or the two share no environment and split.
    """
    pairs = _models(a, b, model_a, model_b)
    cells_a, cells_b = ({cell.key: cell for cell in results.cells} for results in (a, b))
    pairs_of_cells: list[tuple[Cell, Cell]] = []
    alone: list[str] = []
    for name_a, name_b in pairs:
        keys_a = {key[1:] for key in cells_a if key[0] == name_a}
        keys_b = {key[1:] for key in cells_b if key[0] == name_b}
        pairs_of_cells += [(cells_a[(name_a, *key)], cells_b[(name_b, *key)]) for key in sorted(keys_a & keys_b)]
        alone += [f"only A has {name_a} on {' / '.join(key)}" for key in sorted(keys_a - keys_b)]
        alone += [f"only B has {name_b} on {' / '.join(key)}" for key in sorted(keys_b - keys_a)]
    if not pairs_of_cells:
        raise InvalidParams("the two evaluations share no environment and split, so there is nothing to compare")
    compared = [_compare(cell_a, cell_b) for cell_a, cell_b in pairs_of_cells]
    adjusted = holm([None if cell.reward is None else cell.reward.p for cell in compared])
    return Comparison(
        cells=tuple(cell.model_copy(update={"p_adjusted": p}) for cell, p in zip(compared, adjusted, strict=True)),
        notes=(*_differences(a, b), *alone),
    )


def _models(
    a: EvaluationResults, b: EvaluationResults, model_a: str | None, model_b: str | None
) -> list[tuple[str, str]]:
    """Return the pairs of models to compare."""
    names_a, names_b = ([model.name for model in results.models] for results in (a, b))
    if model_a is None and model_b is None:
        common = [(name, name) for name in names_a if name in names_b]
        if common and a is not b:
            return common
        if not common and len(names_a) == len(names_b) == 1:
            return [(names_a[0], names_b[0])]
        raise InvalidParams(
            f"say which models to compare, with --model-a and --model-b: A has {', '.join(map(repr, names_a))}; "
            f"B has {', '.join(map(repr, names_b))}"
        )
    return [(_model(names_a, model_a, "A"), _model(names_b, model_b, "B"))]


def _model(names: Sequence[str], name: str | None, which: str) -> str:
    if name is None and len(names) == 1:
        return names[0]
    choices = ", ".join(map(repr, names))
    if name is None:
        raise InvalidParams(f"{which} has several models; name one with --model-{which.lower()}: {choices}")
    if name not in names:
        raise InvalidParams(f"{which} has no model {name!r}; it has {choices}{did_you_mean(name, names)}")
    return name


def _differences(a: EvaluationResults, b: EvaluationResults) -> Iterator[str]:
    if a.seed != b.seed:
        yield f"the seeds differ ({a.seed} and {b.seed}), so episodes of a task may have started differently"
    if a.samples != b.samples:
        yield f"the episodes per task differ ({a.samples} and {b.samples})"
    if a.limits != b.limits:
        yield "the limits of episodes differ"
    for name, results in (("A", a), ("B", b)):
        if not results.finished:
            yield f"{name} is not finished"


def _compare(a: Cell, b: Cell) -> CellComparison:
    means_a, means_b = _means(a, None), _means(b, None)
    shared = [task for task in means_a if task in means_b]
    same_success = a.success_at == b.success_at
    return CellComparison(
        environment=a.environment,
        split=a.split,
        model_a=a.model,
        model_b=b.model,
        mean_a=_mean(means_a, shared),
        mean_b=_mean(means_b, shared),
        reward=paired_difference(means_a, means_b),
        success=paired_difference(_means(a, a.success_at), _means(b, b.success_at)) if same_success else None,
        p_adjusted=None,
        notes=tuple(_notes(a, b)),
    )


def _notes(a: Cell, b: Cell) -> Iterator[str]:
    if a.environment_version != b.environment_version:
        yield (
            f"the versions of the environment differ ({a.environment_version!r} and {b.environment_version!r}), so "
            "its tasks may, too"
        )
    if a.success_at != b.success_at:
        yield f"success means another reward ({a.success_at:g} and {b.success_at:g})"
    tasks_a, tasks_b = ({task.task for task in cell.tasks} for cell in (a, b))
    for name, left_out in (("A", tasks_a - tasks_b), ("B", tasks_b - tasks_a)):
        if left_out:
            shown_names = ", ".join(sorted(left_out)[:SHOWN_TASKS]) + (", …" if len(left_out) > SHOWN_TASKS else "")
            yield f"{len(left_out)} tasks are only in {name} and left out: {shown_names}"
    missing = (tasks_a & tasks_b) - (_means(a, None).keys() & _means(b, None).keys())
    if missing:
        yield f"{len(missing)} shared tasks have no scored episode in one of the two and are left out"
    if _seeds(a, b):
        yield "episodes of the same task and sample had different seeds"
    for name, cell in (("A", a), ("B", b)):
        if cell.episodes > cell.scored:
            yield f"{cell.episodes - cell.scored} of {cell.episodes} episodes of {name} are unscored and left out"


def _seeds(a: Cell, b: Cell) -> bool:
    """Return whether any episode that both have had another seed."""
    if not (a.seeded and b.seeded):
        return False
    seeds = {(task.task, episode.sample): episode.seed for task in a.tasks for episode in task.episodes}
    return any(
        seeds.get((task.task, episode.sample), episode.seed) != episode.seed
        for task in b.tasks
        for episode in task.episodes
    )


def _means(cell: Cell, success_at: float | None) -> dict[str, float]:
    """Return the mean reward of each task, or with `success_at` its share of successes."""
    means: dict[str, float] = {}
    for task in cell.tasks:
        values = [episode.reward for episode in task.episodes if episode.reward is not None]
        if success_at is not None:
            values = [float(value >= success_at - SUCCESS_TOLERANCE) for value in values]
        if values:
            means[task.task] = math.fsum(values) / len(values)
    return means


def _mean(means: Mapping[str, float], tasks: Sequence[str]) -> float | None:
    return math.fsum(means[task] for task in tasks) / len(tasks) if tasks else None
