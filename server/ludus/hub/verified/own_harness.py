"""The hub's own harness: the agent loop of `ludus eval`, as it runs in the sandbox of a verified run."""

from __future__ import annotations

import sys

from ludus.client.agent_endpoint import open_agent_endpoint
from ludus.client.agent_loop import run_episode
from ludus.client.policies.openai import OpenAIPolicy


async def play(play_url: str, base_url: str, model: str) -> None:
    """Play one episode.

    Args:
        play_url: the agent endpoint of the episode.
        base_url: the base URL of the model.
        model: its name.
    """
    async with OpenAIPolicy(model, base_url, "none") as policy, open_agent_endpoint(play_url) as episode:
        trajectory = await run_episode(episode, policy)
    if trajectory.failure is not None:
        sys.exit(f"{trajectory.failure.error}: {trajectory.failure.message}")
