import asyncio
import random

from ludus.client import Episode, connect

GROUPS, EPISODES = 4, 8


async def play(episode: Episode, rng: random.Random) -> float | None:
    """One rollout; a real trainer samples tokens here. None is an episode that says nothing about the policy."""
    low, high = 1, episode.task.fields["length"]
    while not episode.ended:
        metre = rng.randint(low, high)
        result = await episode.call("dig", metre=metre)
        low, high = (metre + 1, high) if "further on" in str(result.content) else (low, metre - 1)
    return (await episode.rewards()).total.value


async def main() -> None:
    async with connect("http://127.0.0.1:8000") as client:
        hunt = client.environment("treasure_hunt")
        for seed in range(GROUPS):
            async with hunt.group(EPISODES, split="train", seed=seed) as group:
                rngs = [random.Random(f"{seed}/{number}") for number in range(EPISODES)]
                rewards = await asyncio.gather(*map(play, group, rngs))
            scored = [reward for reward in rewards if reward is not None]
            baseline = sum(scored) / len(scored)
            advantages = [None if reward is None else round(reward - baseline, 2) for reward in rewards]
            print(group[0].task.id, advantages)


asyncio.run(main())
