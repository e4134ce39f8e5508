"""Uploads of evaluations. Nothing in them is proved; what contradicts itself or the version is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from packaging.utils import canonicalize_version
from sqlalchemy.exc import IntegrityError

from ludus.hub.registry.catalog import VersionRecord
from ludus.hub.results.figures import bounds_of, is_possible
from ludus.hub.results.store import Conclude, NewRun, ResultStore
from ludus.protocol.errors import Conflict, EnvironmentNotFound, InvalidParams, SplitNotFound
from ludus.protocol.evaluation import Interval
from ludus.protocol.messages import did_you_mean
from ludus.registry.types.errors import DigestMismatch
from ludus.registry.types.packages import EnvironmentEntry
from ludus.registry.types.results import BoardKey, RunEpisode, RunInfo, Submission, counted_value
from ludus.registry.types.signing import digest_of
from ludus.server.auth.principal import Principal

LONGEST_END: Final = 100
"""The most characters of an end reason."""


def submit(
    store: ResultStore, conclude: Conclude, principal: Principal, record: VersionRecord, upload: Submission, *,
    by_publisher: bool,
) -> tuple[RunInfo, bool]:  # fmt: skip
    """Keep an upload, and return its run, and whether it is new: the same upload again is answered like the first.

    Raises:
        VersionBlocked: the version is blocked.
        Conflict: the version is yanked, or another account has uploaded exactly this.
        DigestMismatch: it is about another wheel than that of the version.
        EnvironmentNotFound, SplitNotFound: the version has no such environment or split.
        InvalidParams: it contradicts itself or the environment.
        CapacityError: the account has too many runs on the board.
    """
    entry = _check_version(record, upload)
    _check_figures(upload, entry)
    board = BoardKey(
        package=record.id, version=record.version, environment=upload.environment, split=upload.split, level="reported"
    )
    digest = digest_of(upload)
    if (before := store.find_digest(board, digest)) is not None:
        return _same(before, principal), False
    now = datetime.now(UTC)
    new = NewRun(
        board=board, sha256=record.sha256, principal=principal.name, by_publisher=by_publisher,
        declared=upload.declared, tasks=len(upload.tasks), samples=upload.samples, success_at=upload.success_at,
        reward_range=entry.reward_range, created_at=now, digest=digest,
        deadline=now,  # if the hub is killed before the figures are computed, the sweeper does it
    )  # fmt: skip
    try:
        key = store.register(new, list(_rows(upload, entry.reward_range)), state="ended")
    except IntegrityError:  # the same upload, twice at one time
        before = store.find_digest(board, digest)
        if before is None:
            raise
        return _same(before, principal), False
    store.finish(key, "", now, conclude)
    return store.run(key), True


def _same(before: RunInfo, principal: Principal) -> RunInfo:
    if before.by != principal.name:
        raise Conflict(f"{before.by!r} has submitted exactly these results as the run {before.key}")
    return before


def _check_version(record: VersionRecord, upload: Submission) -> EnvironmentEntry:
    title = f"{record.id} {record.version}"
    record.check_offered()
    if upload.sha256 != record.sha256:
        raise DigestMismatch(
            f"these results are about a wheel with sha256 {upload.sha256}, and that of {title} has {record.sha256}"
        )
    names = [environment.name for environment in record.environments]
    entry = next((environment for environment in record.environments if environment.name == upload.environment), None)
    if entry is None:
        near = did_you_mean(upload.environment, names)
        raise EnvironmentNotFound(f"{title} has no environment {upload.environment[:100]!r}{near}")
    ours, theirs = entry.version, upload.environment_version
    if ours and theirs and canonicalize_version(ours) != canonicalize_version(theirs):
        raise DigestMismatch(
            f"these results are of version {theirs!r} of {entry.name}, and the wheel of {title} has version {ours!r}"
        )
    splits = {split.name: split.count for split in entry.splits}
    if splits and upload.split not in splits:
        near = did_you_mean(upload.split, list(splits))
        raise SplitNotFound(f"{upload.environment} of {title} has no split {upload.split[:100]!r}{near}")
    count = splits.get(upload.split)
    if count is not None and max(task.index for task in upload.tasks) >= count:
        raise InvalidParams(f"the split {upload.split!r} has {count} tasks, and the upload has one beyond the last")
    return entry


def _check_figures(upload: Submission, entry: EnvironmentEntry) -> None:
    low, high = bounds_of(entry.reward_range)
    means = []
    for task in upload.tasks:
        rewards = [episode.reward for episode in task.episodes if episode.reward is not None]
        for reward in rewards:
            if not is_possible(reward, entry.reward_range):
                raise InvalidParams(f"the reward {reward:g} of the task {task.task[:80]!r} is not within "
                                    f"{low:g} and {high:g}, which the environment declares")  # fmt: skip
        if any(len(episode.end) > LONGEST_END for episode in task.episodes):
            raise InvalidParams(f"an end reason of the task {task.task[:80]!r} is longer than {LONGEST_END} characters")
        if rewards:
            means.append(math.fsum(rewards) / len(rewards))
    mean = math.fsum(means) / len(means) if means else None
    same = (mean is None) == (upload.mean is None)
    if not same or not math.isclose(mean or 0.0, upload.mean or 0.0, rel_tol=1e-6, abs_tol=1e-6):
        raise InvalidParams(f"the mean is given as {upload.mean}, and the episodes have {mean}")


def _rows(upload: Submission, reward_range: Interval | None) -> Iterator[RunEpisode]:
    place = 0
    for task in sorted(upload.tasks, key=lambda one: one.index):
        for one in sorted(task.episodes, key=lambda one: one.sample):
            yield RunEpisode(
                place=place, task=task.task, index=task.index, sample=one.sample, seed=one.seed, reward=one.reward,
                value=counted_value(one.reward, one.end, reward_range), end=one.end, steps=None, attempts=1,
                input_tokens=one.input_tokens, output_tokens=one.output_tokens,
            )  # fmt: skip
            place += 1
