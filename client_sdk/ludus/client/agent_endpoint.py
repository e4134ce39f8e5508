"""Play an episode that another client has started, with nothing but its play URL.

The player sees what an agent sees: the prompt, the tools and the observations. Rewards and the task belong to the
client that started the episode.

    async with open_agent_endpoint(play_url) as episode:
        trajectory = await run_episode(episode, policy)

The client that started the episode completes the record with `with_rewards`.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from ludus.client._session import Session
from ludus.client.episode import Episode
from ludus.client.transports.agent import SHOWN, AgentWire
from ludus.protocol.episodes import EpisodeInfo, StartedEpisode, TaskRow
from ludus.protocol.identifiers import SUBMIT_TOOL
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, Event
from ludus.protocol.rewards import RewardEntry
from ludus.protocol.trajectory import Failure, Trajectory

__all__ = ["open_agent_endpoint", "with_rewards"]


UNKNOWN_TASK = TaskRow(id="", split="", index=0, fields={})
"""The task in the trajectory of a player that does not know which one it is."""


@asynccontextmanager
async def open_agent_endpoint(
    play_url: str,
    *,
    environment: str = "",
    task: TaskRow = UNKNOWN_TASK,
    seed: int = 0,
    timeout: float | None = 300.0,
    reconnect_seconds: float = 30.0,
) -> AsyncIterator[Episode]:
    """Open the agent endpoint of an episode, for `run_episode` or a `Driver`.

    Leaving the block closes the connection only. The episode goes on until it ends, or its client closes it.

    Args:
        play_url: the play URL: `StartedEpisode.play.url`, `Episode.play_url`.
        environment: the environment's name, for the trajectory.
        task: the task, for the trajectory.
        seed: the episode's seed, for the trajectory.
        timeout: seconds that one request may take; None for no limit.
        reconnect_seconds: seconds to retry a request while the server cannot be reached.

    Raises:
        ValueError: the address is not one of HTTP.
        CapabilityRefused: it is not the URL of an episode, or it is no longer valid.
        ConnectionFailed: the server cannot be reached.
    """
    if urlsplit(play_url).scheme not in ("http", "https") or not urlsplit(play_url).hostname:
        raise ValueError("this is not a play URL: it must be an address of http or https")
    wire = AgentWire(play_url, timeout=timeout, reconnect_seconds=reconnect_seconds)
    session = Session(wire, SHOWN)
    try:
        tools = await wire.tools()
        started = StartedEpisode(
            episode=f"agent-{hashlib.sha256(play_url.encode()).hexdigest()[:16]}", task=task, seed=seed,
            prompt=await wire.prompt(), tools=tuple(tool for tool in tools if tool.name != SUBMIT_TOOL),
            gradable=any(tool.name == SUBMIT_TOOL for tool in tools),
        )  # fmt: skip
        wire.begin(started, environment)
        session.used = True
        yield Episode(session, started, group=started.episode, environment=environment)
    finally:
        await session.close()


def with_rewards(trajectory: Trajectory, info: EpisodeInfo, entries: Sequence[RewardEntry]) -> Trajectory:
    """Return the trajectory of a player with what the client that started the episode knows of it.

    Args:
        trajectory: what the player has recorded.
        info: the state of the closed episode.
        entries: its reward log.
    """
    rewards = {entry.step: entry.reward for entry in entries if entry.source == "step"}
    grade = next((entry.reward for entry in entries if entry.source == "grade"), None)
    failure = trajectory.failure or _failure(info)
    update = {
        "environment": info.environment, "task": info.task, "split": info.task.split, "seed": info.seed,
        "episode": info.episode, "group": info.group, "status": info.status, "end_reason": info.end_reason,
        "reward": info.reward if failure is None else None, "grade": grade, "failure": failure,
        "steps": tuple(step.model_copy(update={"reward": rewards.get(step.step)}) for step in trajectory.steps),
    }  # fmt: skip
    return trajectory.model_copy(update=update)


def _failure(info: EpisodeInfo) -> Failure | None:
    """Return the failure with which an episode ended; None if it ended otherwise."""
    if info.end_reason is None or EVENT_OF_REASON[info.end_reason] is not Event.FAIL:
        return None
    return Failure(
        kind="environment" if info.end_reason is EndReason.ENVIRONMENT_ERROR else "infrastructure",
        error="EpisodeFailed", message=f"the episode ended with {info.end_reason}", incident=info.incident, attempt=1,
        episode=info.episode,
    )  # fmt: skip
