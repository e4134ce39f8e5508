"""Playing a run that a hub scores: the hub starts the episodes, and this side only acts at their agent endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from ludus.client import Policy, TrajectoryWriter
from ludus.client.agent_endpoint import open_agent_endpoint
from ludus.client.agent_loop import Harness, run_episode
from ludus.client.branches import first_error
from ludus.protocol.episodes import TaskRow
from ludus.protocol.errors import CapacityError, EveryAttemptFailed, LudusError
from ludus.protocol.trajectory import Failure, Trajectory
from ludus.registry.results import ResultsClient
from ludus.registry.types.results import EndEpisodeParams, EpisodeTicket, RunInfo

PAUSE_SECONDS: Final = 5.0
"""How long to wait before asking again while the hub has no room."""

SAME_FAILURES: Final = 3
"""After this many failures of the policy in a row, no further episode begins."""

CONCURRENCY: Final = 4
"""The default number of episodes at one time."""


class PlayedEpisode(NamedTuple):
    """An episode that was played."""

    place: int
    end: str | None
    """The end reason; None if the hub starts the episode again, because its infrastructure broke."""
    trajectory: Trajectory
    """Without rewards, which belong to the hub."""


async def play_run(
    client: ResultsClient, run: RunInfo, policy: Policy, *, concurrency: int = CONCURRENCY,
    harness: Harness | None = None, writer: TrajectoryWriter | None = None,
    on_episode: Callable[[PlayedEpisode], None] | None = None,
) -> RunInfo:  # fmt: skip
    """Play the episodes of a run until there are no more, and return the ended run.

    Episodes of the run that are still open from an earlier process are ended first: they count as they are.

    Args:
        client: the hub.
        run: the registered run.
        policy: chooses the actions.
        concurrency: how many episodes are played at one time; a hub allows a bounded number.
        harness: the limits of the agent loop.
        writer: where the trajectories go; they have no rewards.
        on_episode: called after each episode.

    Raises:
        EveryAttemptFailed: the policy fails again and again; the rest of the run stays open.
        RequestError: the hub refuses, or the policy is set up wrongly.
        TransportError: the hub cannot be reached. The run goes on until its deadline: call this again.
    """
    for ticket in (await client.open_episodes(run.key)).tickets:
        await client.end_episode(run.key, ticket.place, EndEpisodeParams())
    stop = asyncio.Event()
    failures = 0
    outages: list[Failure] = []

    async def work() -> None:
        nonlocal failures
        while not stop.is_set():
            ticket = await _next(client, run.key, stop)
            if ticket is None:
                stop.set()
                return
            played = await _play(client, run, ticket, policy, harness)
            if writer is not None:
                writer.write(played.trajectory)
            if on_episode is not None:
                on_episode(played)
            failure = played.trajectory.failure
            failures = failures + 1 if failure is not None and played.end is not None else 0
            if failure is not None and failures >= SAME_FAILURES:
                # The episodes that have begun go on: one that is left behind counts with the lowest reward.
                stop.set()
                outages.append(failure)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, run.tasks * run.samples)):
                group.create_task(work())
    except BaseExceptionGroup as failed:
        raise first_error(failed) from None
    played = await client.run(run.key)
    if outages and played.state == "open":
        reason = f"{outages[0].error}: {outages[0].message}"
        raise EveryAttemptFailed(
            f"stopped early, because {SAME_FAILURES} episodes in a row or more failed on this side, and each of them "
            f"counts with the lowest reward: {reason}. The run {run.key} is open until its deadline, and can be resumed"
        )
    return played


async def _next(client: ResultsClient, run: str, stop: asyncio.Event) -> EpisodeTicket | None:
    """Return the next ticket; None when all episodes have ended."""
    while not stop.is_set():
        try:
            found = await client.next_episode(run)
        except CapacityError as error:
            await asyncio.sleep(min(error.retry_after or PAUSE_SECONDS, PAUSE_SECONDS))
            continue
        if found.ticket is not None or not (found.open or found.waiting):
            return found.ticket
        await asyncio.sleep(PAUSE_SECONDS / 10)  # one of the open episodes may have to be started again
    return None


async def _play(
    client: ResultsClient, run: RunInfo, ticket: EpisodeTicket, policy: Policy, harness: Harness | None
) -> PlayedEpisode:
    task = TaskRow(id=f"{run.key}/{ticket.place}", split=run.split, index=ticket.place, fields={})
    try:
        async with open_agent_endpoint(
            ticket.play_url, environment=run.environment, task=task, seed=ticket.place
        ) as episode:
            trajectory = await run_episode(episode, policy, harness=harness, version=run.version)
    except LudusError:
        await client.end_episode(run.key, ticket.place, EndEpisodeParams())
        raise
    used = trajectory.usage
    known = used is not None and all(turn.usage is not None for turn in trajectory.turns)
    params = EndEpisodeParams(
        input_tokens=used.input_tokens if used is not None and known else None,
        output_tokens=used.output_tokens if used is not None and known else None,
    )
    end = await client.end_episode(run.key, ticket.place, params)
    return PlayedEpisode(ticket.place, end.end, trajectory)
