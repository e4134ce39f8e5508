"""Playing matches on a hub, which finds the opponents, starts the matches and reads the rewards of both sides."""

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
from ludus.protocol.trajectory import Trajectory
from ludus.registry.matches import MatchesClient
from ludus.registry.played_runs import PAUSE_SECONDS, SAME_FAILURES
from ludus.registry.types.matches import EntrantInfo, MatchEnd, MatchTicket

CONCURRENCY: Final = 1
"""The default number of matches at one time."""


class PlayedMatch(NamedTuple):
    """A match that was played."""

    ticket: MatchTicket
    end: MatchEnd
    """As far as it is known when this side is done: the other one may still have to see the end."""
    trajectory: Trajectory
    """Without rewards, which belong to the hub."""


async def play_matches(
    client: MatchesClient, entrant: EntrantInfo, policy: Policy, *, concurrency: int = CONCURRENCY,
    patience: float = 3600.0, harness: Harness | None = None, writer: TrajectoryWriter | None = None,
    on_match: Callable[[PlayedMatch], None] | None = None, on_wait: Callable[[int], None] | None = None,
) -> EntrantInfo:  # fmt: skip
    """Play the matches of an entrant until none is left, and return the entrant.

    Matches that are open from an earlier process are played on from where they are.

    Args:
        client: the hub.
        entrant: the registered entrant.
        policy: chooses the actions.
        concurrency: how many matches are played at one time; a hub allows a few.
        patience: after how many seconds without an opponent, or without room on the hub, to stop; the entrant stays
            registered until its deadline.
        harness: the limits of the agent loop.
        writer: where the trajectories go; they have no rewards.
        on_match: called after each match.
        on_wait: called with the number of matches that are left when no opponent came.

    Raises:
        EveryAttemptFailed: the policy fails again and again; the entrant stays open.
        RequestError: the hub refuses, or the policy is set up wrongly.
        TransportError: the hub cannot be reached. The entrant goes on until its deadline: call this again.
    """
    loop = asyncio.get_running_loop()
    resumed = list((await client.open_matches(entrant.key)).tickets)
    failures, last_seen = 0, loop.time()

    async def work() -> None:
        nonlocal failures, last_seen
        while True:
            ticket = resumed.pop() if resumed else None
            if ticket is None:
                try:
                    found = await client.next_match(entrant.key)
                except CapacityError as error:
                    if loop.time() - last_seen > patience:
                        return
                    await asyncio.sleep(min(error.retry_after or PAUSE_SECONDS, PAUSE_SECONDS))
                    continue
                ticket = found.ticket
                if ticket is None:
                    if (not found.left and not found.open) or loop.time() - last_seen > patience:
                        return
                    if not found.left:  # an open match may break, and is then given again
                        await asyncio.sleep(PAUSE_SECONDS / 5)
                    elif on_wait is not None:
                        on_wait(found.left)
                    continue
            played = await _play(client, entrant, ticket, policy, harness)
            last_seen = loop.time()
            if writer is not None:
                writer.write(played.trajectory)
            if on_match is not None:
                on_match(played)
            failure = played.trajectory.failure
            failures = failures + 1 if failure is not None else 0
            if failure is not None and failures >= SAME_FAILURES:
                raise EveryAttemptFailed(
                    f"stopped early, because {failures} matches in a row failed on this side, and leaving one loses it:"
                    f" {failure.error}: {failure.message}. The entrant {entrant.key} is open until its deadline"
                )

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(max(1, min(concurrency, entrant.registered))):
                group.create_task(work())
    except BaseExceptionGroup as failed:
        raise first_error(failed) from None
    return await client.entrant(entrant.key)


async def _play(
    client: MatchesClient, entrant: EntrantInfo, ticket: MatchTicket, policy: Policy, harness: Harness | None
) -> PlayedMatch:
    task = TaskRow(id=f"{entrant.key}/{ticket.match}", split=entrant.split, index=0, fields={})
    try:
        async with open_agent_endpoint(ticket.play_url, environment=entrant.environment, task=task, seed=0) as episode:
            trajectory = await run_episode(episode, policy, harness=harness, version=entrant.version)
    except LudusError:
        await client.end_match(entrant.key, ticket.match)
        raise
    end = await client.end_match(entrant.key, ticket.match)
    return PlayedMatch(ticket, end, trajectory)
