"""From the results of an evaluation to what is uploaded to a hub: figures of episodes, and nothing that was said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from ludus.protocol.errors import InvalidParams
from ludus.protocol.evaluation import Cell, EvaluationResults, Model
from ludus.protocol.lifecycle import EndReason
from ludus.registry.types.packages import EnvironmentEntry, VersionInfo
from ludus.registry.types.results import Declared, Submission

OTHER_END: Final = "failed"
"""The end of an episode in an upload whose end is no end reason, such as a failure of the policy."""


def submissions_of(results: EvaluationResults, version: VersionInfo, models: Sequence[str] = ()) -> list[Submission]:
    """Return the uploads of an evaluation: one for each model on each split of the version's environments.

    Args:
        results: the evaluation.
        version: the published version that was evaluated.
        models: the models to upload; all by default.

    Raises:
        InvalidParams: there is nothing to upload, a cell is not complete, or the evaluation was of another version.
    """
    known = {model.name: model for model in results.models}
    if unknown := set(models) - set(known):
        raise InvalidParams(f"the evaluation has no model {min(unknown)!r}; it has {', '.join(known)}")
    entries = {entry.name: entry for entry in version.manifest.environments}
    chosen = [cell for cell in results.cells if cell.environment in entries and (not models or cell.model in models)]
    if not chosen:
        have = ", ".join(sorted({cell.environment for cell in results.cells}))
        raise InvalidParams(
            f"{version.id} {version.version} has the environments {', '.join(entries)}, and the evaluation is of {have}"
        )
    for cell in chosen:
        _check(cell, entries[cell.environment], version)
    return [_submission(cell, results, known[cell.model], version) for cell in chosen]


def described(submission: Submission, version: VersionInfo, hub: str, *, with_rollouts: bool = False) -> Iterator[str]:
    """Yield lines that say what an upload makes public."""
    declared = submission.declared
    episodes = len(submission.tasks) * submission.samples
    yield f"to {hub}, for all to see: {version.id} {version.version}, {submission.environment} / {submission.split}"
    yield f"  model {declared.model}, harness {declared.harness}, options {declared.options or 'none'}"
    yield f"  {episodes} episodes of {len(submission.tasks)} tasks: task id, seed, reward, how it ended, token counts"
    if declared.price_in is not None:
        yield "  the prices of the tokens"
    if with_rollouts:
        yield "  the whole conversations of these episodes, with all observations and messages"
    yield f"  not: {'' if with_rollouts else 'conversations, messages of errors, '}the model's address and key"


def _check(cell: Cell, entry: EnvironmentEntry, version: VersionInfo) -> None:
    from packaging.utils import canonicalize_version

    name = f"{cell.model} on {cell.environment} / {cell.split}"
    ours, theirs = entry.version, cell.environment_version
    if cell.episodes != cell.planned:
        raise InvalidParams(
            f"{name} has {cell.episodes} of {cell.planned} episodes; play the others first, with --resume"
        )
    if ours and theirs and canonicalize_version(ours) != canonicalize_version(theirs):
        raise InvalidParams(
            f"{name} was evaluated at version {theirs!r} of the environment, and {version.id} {version.version} has "
            f"{ours!r}"
        )


def _submission(cell: Cell, results: EvaluationResults, model: Model, version: VersionInfo) -> Submission:
    ends = {str(reason) for reason in EndReason}
    tasks = tuple(
        task.model_copy(update={"episodes": tuple(
            episode.model_copy(update={"end": _plain_end(episode.end, ends)}) for episode in task.episodes
        )})
        for task in cell.tasks
    )  # fmt: skip
    means = [math.fsum(known) / len(known) for task in tasks
             if (known := [episode.reward for episode in task.episodes if episode.reward is not None])]  # fmt: skip
    return Submission(
        sha256=version.sha256, environment=cell.environment, environment_version=cell.environment_version[:100],
        split=cell.split, samples=results.samples, success_at=cell.success_at,
        declared=Declared(
            model=cell.model[:200], harness=f"ludus eval {results.ludus_version}"[:200], options=model.options,
            price_in=model.price_in, price_out=model.price_out,
        ),
        mean=math.fsum(means) / len(means) if means else None, scored=cell.scored, tasks=tasks,
    )  # fmt: skip


def _plain_end(end: str, ends: set[str]) -> str:
    first = end.partition(" ")[0]  # a stop of the harness is added in brackets
    return first if first in ends else OTHER_END
