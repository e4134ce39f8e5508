"""Playing one cell: one policy over tasks of one split, into a file of trajectories.

`ludus run`, `ludus calibrate` and `ludus eval` play by the same function.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Container, Iterable
from contextlib import aclosing
from typing import NamedTuple

from ludus.client import Harness, Policy, Progress, RemoteEnvironment, TaskRow, TrajectoryWriter, rollout
from ludus.protocol.errors import EveryAttemptFailed
from ludus.protocol.trajectory import Trajectory


class Played(NamedTuple):
    """The episodes that were played now."""

    trajectories: list[Trajectory]
    """Without their conversations."""
    stopped: EveryAttemptFailed | None
    """Why the cell stopped early; None if it did not."""


async def play_cell(
    environment: RemoteEnvironment,
    policy: Policy,
    *,
    split: str,
    tasks: Iterable[TaskRow | str | int] | None = None,
    n: int | None = None,
    samples: int = 1,
    seed: int | None = None,
    concurrency: int = 16,
    retries: int = 2,
    harness: Harness | None = None,
    writer: TrajectoryWriter | None = None,
    skip: Container[tuple[str, str, str, int]] | None = None,
    stop_after_same_failure: int | None = None,
    stop_after_lost: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Played:
    """Play the episodes that `writer` does not hold yet, and write each as soon as it ends.

    Args:
        environment: the environment.
        policy: the policy.
        split: the split that the tasks come from.
        tasks: see `rollout`, as for `n`, `samples`, `seed`, `concurrency`, `retries`, `harness` and
            `stop_after_same_failure`.
        n: how many tasks.
        samples: episodes per task.
        seed: the seed of the run.
        concurrency: how many episodes run at the same time.
        retries: further attempts at an episode whose infrastructure failed.
        harness: limits of the agent loop.
        writer: the file; nothing is written when None.
        skip: keys of episodes not to play; those that `writer` holds when None.
        stop_after_same_failure: how many attempts may fail in the same way at the beginning.
        stop_after_lost: how many consecutive episodes may fail by their infrastructure, which then is considered lost;
            any number when None.
        on_progress: called after each episode.

    Raises:
        RequestError: the setup is wrong, so every episode would fail.
    """
    finished = skip if skip is not None else writer.done if writer is not None else ()
    stream = rollout(
        environment, policy, split=split, tasks=tasks, n=n, samples=samples, seed=seed, concurrency=concurrency,
        retries=retries, harness=harness, skip=finished, stop_after_same_failure=stop_after_same_failure,
        on_progress=on_progress,
    )  # fmt: skip
    return await collect(stream, writer, stop_after_lost=stop_after_lost)


async def collect(
    stream: AsyncGenerator[Trajectory],
    writer: TrajectoryWriter | None,
    keep: Callable[[Trajectory], bool] | None = None,
    *,
    stop_after_lost: int | None = None,
) -> Played:
    """Write each trajectory, and return them without their conversations, with the error of an early stop, if any.

    Args:
        stream: from `rollout`; it is closed.
        writer: the file.
        keep: which trajectories to write; all when None.
        stop_after_lost: see `play_cell`.
    """
    played: list[Trajectory] = []
    lost = 0
    async with aclosing(stream):
        try:
            async for trajectory in stream:
                if writer is not None and (keep is None or keep(trajectory)):
                    writer.write(trajectory)
                played.append(without_conversation(trajectory))
                failure = trajectory.failure
                lost = lost + 1 if failure is not None and failure.kind == "infrastructure" else 0
                if failure is not None and stop_after_lost is not None and lost >= stop_after_lost:
                    return Played(
                        played,
                        EveryAttemptFailed(
                            f"stopped early, because the infrastructure of {lost} consecutive episodes failed: "
                            f"{failure.error}: {failure.message}"
                        ),
                    )
        except EveryAttemptFailed as error:
            return Played(played, error)
    return Played(played, None)


def without_conversation(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory without its conversation, which may be large and is not needed for statistics."""
    return trajectory.model_copy(update={"items": (), "tools": ()})
