import asyncio

from ludus.client import connect, start_chains


async def main() -> None:
    async with connect("http://127.0.0.1:8000") as client:
        for number, chain in enumerate(await start_chains(client.environment("garden"), 0, samples=2)):
            rewards = []
            async with chain:
                async for episode in chain:
                    planted = await episode.call("plant")
                    for _ in range(number):
                        planted = await episode.call("plant")
                    last = await episode.grade("") if planted.error is None else await episode.call("harvest")
                    rewards.append(last.reward.value if last.reward else None)
            print(number, rewards)


asyncio.run(main())
