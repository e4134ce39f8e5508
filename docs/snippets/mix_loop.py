import asyncio

from ludus.client import run_episode
from ludus.client.mix import open_mix
from ludus.client.policies import RandomPolicy


async def main() -> None:
    async with open_mix("mix.toml", seed=1) as mix:
        for _ in range(20):
            draw = await mix.draw()
            async with draw.group(4) as group:
                played = await asyncio.gather(*(run_episode(episode, RandomPolicy()) for episode in group))
            mix.report(draw.number, [trajectory.value for trajectory in played])
        print(mix.mixer.shares())


asyncio.run(main())
