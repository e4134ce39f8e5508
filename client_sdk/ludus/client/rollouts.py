"""Rollouts: play many episodes with a policy concurrently, and keep failures apart from rewards."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Iterable, Sized
from dataclasses import dataclass, field
from typing import Final

from ludus.client.agent_loop import Harness, run_episode
from ludus.client.branches import Attempt, Branching, BranchPlayer, require_forks
from ludus.client.causes import REWARDS_NOT_READABLE, cause_of, without_ids
from ludus.client.driver import EPISODE_LOST_ERRORS, failure_of
from ludus.client.environment import RemoteEnvironment, find_split
from ludus.client.policies.base import Policy, policy_name
from ludus.common.backoff import Backoff
from ludus.protocol import errors as e
from ludus.protocol.episodes import EnvironmentInfo, EpisodeLimits, TaskRow
from ludus.protocol.trajectory import Failure, FailureKind, Trajectory

__all__ = ["Progress", "episode_seed", "group_seed", "rollout", "rollout_all"]

FIRST_PAUSE: Final = 0.5
"""Seconds before the second attempt at an episode; doubled for each further attempt, with jitter."""

LONGEST_PAUSE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a rollout."""

    done: int
    total: int | None
    """None if the tasks are an iterable of unknown length."""
    failed: int
    mean: float | None
    """The mean reward of the scored episodes so far; None without any."""
    latest: Trajectory | None
    """The trajectory that has just ended; None at the beginning."""


@dataclass(frozen=True, slots=True)
class _Job:
    task: TaskRow
    sample: int
    seed: int | None


async def rollout(
    environment: RemoteEnvironment,
    policy: Policy,
    *,
    split: str = "train",
    tasks: Iterable[TaskRow | str | int] | None = None,
    n: int | None = None,
    samples: int = 1,
    seed: int | None = None,
    concurrency: int = 16,
    retries: int = 2,
    retry_environment_errors: bool = False,
    harness: Harness | None = None,
    limits: EpisodeLimits | None = None,
    secrets: dict[str, str] | None = None,
    branches: Branching | None = None,
    skip: Container[tuple[str, str, str, int]] = (),
    stop_after_same_failure: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> AsyncGenerator[Trajectory]:
    """Play tasks and yield their trajectories as they end, in no particular order.

    With `branches`, each rollout becomes a tree: the policy also plays forks of the episode from the chosen turns on.
    The trajectories of branches (`Trajectory.branch`) are yielded right before the one that they branched off from.

    Leaving the loop early (close the iterator: `contextlib.aclosing`), or canceling it, closes all open episodes.

    Args:
        environment: from `client.environment(name)`.
        policy: see `ludus.client.policies`.
        split: the split that the tasks come from.
        tasks: rows, ids or indices; all tasks of the split, in order, when None.
        n: how many tasks; all when None, which an endless split refuses.
        samples: episodes per task.
        seed: each episode's seed is derived from it, the task and the sample; the server draws the seeds when None. An
            environment that is not seedable refuses a seed.
        concurrency: how many episodes run at the same time.
        retries: further attempts at an episode whose infrastructure failed; each is a new episode with the same seed.
        retry_environment_errors: whether to retry also when the environment's own code broke.
        harness: limits of the agent loop.
        limits: limits of each episode, which the server enforces.
        secrets: secrets for each episode.
        branches: where the rollouts branch; None never branches.
        skip: keys of trajectories that exist already (`TrajectoryWriter.done`).
        stop_after_same_failure: start no further episodes after this many attempts, if all of them left no reward for
            the same reason; None never stops early.
        on_progress: called at the beginning and after each episode, except after branches.

    Raises:
        Unsupported: the rollouts should branch, and the environment cannot be forked. Nothing was played.
        RequestError: the setup is wrong: an unknown split or task, a missing scope, a refused API key.
        EveryAttemptFailed: `stop_after_same_failure` left tasks unplayed; raised after all trajectories were yielded.
    """
    info = await environment.info()
    if branches is not None:
        require_forks(info)
    repeated_failure = _SameFailure(stop_after_same_failure)
    retried: set[FailureKind] = {"infrastructure", "environment"} if retry_environment_errors else {"infrastructure"}
    play_one = _Player(
        environment, info, policy, split, retries, frozenset(retried), harness or Harness(), limits, secrets,
        repeated_failure, branches, max(1, concurrency),
    )  # fmt: skip
    jobs = _jobs(environment, split, tasks, n, samples, seed, skip)
    meter = _Meter(on_progress, _total(info, split, tasks, n, samples))
    results: asyncio.Queue[Trajectory | BaseException | None] = asyncio.Queue(maxsize=max(1, concurrency))
    draw = _Draw(jobs, repeated_failure)

    async def work() -> None:
        while True:
            job = await draw()
            if job is None:
                return
            for trajectory in await play_one(job):
                await results.put(trajectory)

    async def oversee() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(max(1, concurrency)):
                    group.create_task(work())
        except* Exception as errors:
            await results.put(errors.exceptions[0])
        else:
            await results.put(None)

    overseer = asyncio.ensure_future(oversee())
    try:
        while (result := await results.get()) is not None:
            if isinstance(result, BaseException):
                raise result
            if result.branch is None:
                meter.count(result)
            yield result
        if repeated_failure.stopped and await anext(jobs, None) is not None:
            raise repeated_failure.error()
    finally:
        overseer.cancel()
        await asyncio.gather(overseer, return_exceptions=True)
        await jobs.aclose()


async def rollout_all(
    environment: RemoteEnvironment,
    policy: Policy,
    *,
    split: str = "train",
    tasks: Iterable[TaskRow | str | int] | None = None,
    n: int | None = None,
    samples: int = 1,
    seed: int | None = None,
    concurrency: int = 16,
    retries: int = 2,
    retry_environment_errors: bool = False,
    harness: Harness | None = None,
    limits: EpisodeLimits | None = None,
    secrets: dict[str, str] | None = None,
    branches: Branching | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> list[Trajectory]:
    """Run `rollout` and return all trajectories, sorted by the index of their task, then by sample; branches come
    before the one that they branched off from, in the order of their places."""
    stream = rollout(
        environment, policy, split=split, tasks=tasks, n=n, samples=samples, seed=seed, concurrency=concurrency,
        retries=retries, retry_environment_errors=retry_environment_errors, harness=harness, limits=limits,
        secrets=secrets, branches=branches, on_progress=on_progress,
    )  # fmt: skip
    return sorted([t async for t in stream], key=lambda t: (t.task.index, t.task.id, t.sample))


@dataclass(slots=True)
class _Player:
    environment: RemoteEnvironment
    info: EnvironmentInfo
    policy: Policy
    split: str
    retries: int
    retried: frozenset[FailureKind]
    """The kinds of failures that another attempt may fix."""
    harness: Harness
    limits: EpisodeLimits | None
    secrets: dict[str, str] | None
    same: _SameFailure
    branching: Branching | None
    concurrency: int
    branches: BranchPlayer | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if (chosen := self.branching) is not None:
            slots = [asyncio.Semaphore(chosen.concurrency or self.concurrency) for _ in range(chosen.depth)]
            self.branches = BranchPlayer(chosen, self.harness, self.info.version, self._retrying, slots)

    async def __call__(self, job: _Job) -> list[Trajectory]:
        """Play one job; return the trajectories of its branches, and its own as the last one."""
        grown: list[Trajectory] = []

        async def attempt() -> tuple[Trajectory, float | None]:
            trajectory, retry_after, grown[:] = await self._attempt(job)
            return trajectory, retry_after

        trajectory = await self._retrying(attempt)
        return [*grown, trajectory]

    async def _retrying(self, attempt_once: Attempt) -> Trajectory:
        """Play an episode, and again while it fails for reasons that another attempt may fix."""
        earlier: list[Failure] = []
        began = time.time()
        backoff: Backoff | None = None
        while True:
            trajectory, retry_after = await attempt_once()
            self.same.note(trajectory)
            if trajectory.failure is None and not earlier:
                return trajectory
            attempt = len(earlier) + 1
            failure = trajectory.failure and trajectory.failure.model_copy(update={"attempt": attempt})
            again = failure is not None and failure.kind in self.retried and attempt <= self.retries
            if failure is not None and again and not self.same.stopped:
                backoff = backoff or Backoff(FIRST_PAUSE, LONGEST_PAUSE)
                await asyncio.sleep(backoff.next() if retry_after is None else min(retry_after, LONGEST_PAUSE))
                if not self.same.stopped:
                    earlier.append(failure)
                    continue
            times = {"started_at": began, "seconds": time.time() - began} if earlier else {}
            return trajectory.model_copy(
                update={"failure": failure, "attempts": attempt, "incidents": tuple(earlier)} | times
            )

    async def _attempt(self, job: _Job) -> tuple[Trajectory, float | None, list[Trajectory]]:
        began = time.time()
        try:
            episode = await self.environment.start(
                split=self.split, task=job.task.id, seed=job.seed, limits=self.limits, secrets=self.secrets
            )
        except e.LudusError as error:
            if isinstance(error, e.RequestError) and not isinstance(error, EPISODE_LOST_ERRORS):
                raise
            return self._never_started(job, error, began), error.retry_after, []
        if self.branches is not None:
            trunk, grown = await self.branches.tree(episode, self.policy, job.sample)
            return trunk, None, grown
        trajectory = await run_episode(
            episode,
            self.policy,
            harness=self.harness,
            sample=job.sample,
            version=self.info.version,
        )
        return trajectory, None, []

    def _never_started(self, job: _Job, error: e.LudusError, began: float) -> Trajectory:
        return Trajectory(
            environment=self.info.name,
            environment_version=self.info.version,
            split=self.split,
            task=job.task,
            sample=job.sample,
            policy=policy_name(self.policy),
            seed=job.seed,
            started_at=began,
            seconds=time.time() - began,
            failure=failure_of(error),
        )


@dataclass(slots=True)
class _SameFailure:
    """Detects that every attempt so far left no reward for the same reason."""

    limit: int | None
    count: int = 0
    first: tuple[str, str] | None = None
    differ: bool = False
    """Whether any attempt ended differently."""

    @property
    def stopped(self) -> bool:
        return self.limit is not None and not self.differ and self.count >= self.limit

    def note(self, trajectory: Trajectory) -> None:
        """Count one attempt."""
        if self.limit is None:
            return
        cause = cause_of(trajectory)
        self.count += 1
        self.first = self.first or cause
        if cause is None or cause == ("unscored", REWARDS_NOT_READABLE):
            self.differ = True
        elif self.first is None or without_ids(cause) != without_ids(self.first):
            self.differ = True

    def error(self) -> e.EveryAttemptFailed:
        kind, message = self.first or ("", "")
        return e.EveryAttemptFailed(
            f"stopped early, because all of {self.count} attempts failed for the same reason: {kind}: {message}"
        )


class _Draw:
    """Takes one job at a time, until there is none left or the rollout has stopped."""

    def __init__(self, jobs: AsyncIterator[_Job], repeated_failure: _SameFailure) -> None:
        self._jobs, self._same = jobs, repeated_failure
        # An event instead of a lock, which wakes one waiter per turn of the event loop.
        self._free = asyncio.Event()
        self._free.set()

    async def __call__(self) -> _Job | None:
        while not self._free.is_set():
            await self._free.wait()
        self._free.clear()
        try:
            return None if self._same.stopped else await anext(self._jobs, None)
        finally:
            self._free.set()


@dataclass(slots=True)
class _Meter:
    report: Callable[[Progress], None] | None
    total: int | None
    done: int = 0
    failed: int = 0
    scored: int = 0
    sum: float = 0.0

    def __post_init__(self) -> None:
        self._report_progress(None)

    def count(self, trajectory: Trajectory) -> None:
        """Count one more trajectory, and report the progress."""
        self.done += 1
        self.failed += trajectory.failure is not None
        if trajectory.value is not None:
            self.scored += 1
            self.sum += trajectory.value
        self._report_progress(trajectory)

    def _report_progress(self, latest: Trajectory | None) -> None:
        if self.report is not None:
            mean = self.sum / self.scored if self.scored else None
            self.report(Progress(self.done, self.total, self.failed, mean, latest))


async def _jobs(
    environment: RemoteEnvironment,
    split: str,
    tasks: Iterable[TaskRow | str | int] | None,
    n: int | None,
    samples: int,
    seed: int | None,
    skip: Container[tuple[str, str, str, int]],
) -> AsyncGenerator[_Job]:
    count = 0
    async for task in _rows(environment, split, tasks):
        if n is not None and count >= n:
            return
        count += 1
        for sample in range(samples):
            if (environment.name, split, task.id, sample) not in skip:
                yield _Job(task, sample, episode_seed(seed, task.id, sample))


async def _rows(
    environment: RemoteEnvironment, split: str, tasks: Iterable[TaskRow | str | int] | None
) -> AsyncIterator[TaskRow]:
    if tasks is None:
        async for row in environment.tasks(split):
            yield row
        return
    for task in tasks:
        if isinstance(task, TaskRow):
            yield task
        elif isinstance(task, int):
            yield await environment.task(split, index=task)
        else:
            yield await environment.task(split, task=task)


def _total(
    environment: EnvironmentInfo,
    split: str,
    tasks: Iterable[TaskRow | str | int] | None,
    n: int | None,
    samples: int,
) -> int | None:
    if tasks is not None:
        count = len(tasks) if isinstance(tasks, Sized) else None
    else:
        count = find_split(environment, split, n).count
    if count is None:
        return None if n is None or tasks is not None else n * samples
    return (count if n is None else min(n, count)) * samples


def episode_seed(seed: int | None, task: str, sample: int) -> int | None:
    """Return the seed of one episode: a function of the run's seed, the task and the sample; None without a seed."""
    if seed is None:
        return None
    digest = hashlib.sha256(f"{seed}/{task}/{sample}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def group_seed(run: str | int, task: str, epoch: int = 0) -> int:
    """Return the seed of a group: the same in every process that names the same run, task and epoch.

    Args:
        run: the run's name or seed.
        task: the task's id.
        epoch: how many times the run has played the task before.
    """
    digest = hashlib.sha256(f"{run}/{task}/epoch {epoch}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
