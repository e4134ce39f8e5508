"""A harness for verified runs: an agent loop of at most twenty turns."""

from ludus.client import Harness, OpenAIPolicy, run_episode
from ludus.client.agent_endpoint import open_agent_endpoint


async def play(play_url: str, base_url: str, model: str) -> None:
    """Play one episode. The hub is behind both addresses, so the key is a placeholder."""
    async with OpenAIPolicy(model, base_url, "none") as policy, open_agent_endpoint(play_url) as episode:
        await run_episode(episode, policy, harness=Harness(max_turns=20))
