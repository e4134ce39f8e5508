import asyncio

from ludus.client import connect


async def main() -> None:
    async with connect("http://127.0.0.1:8000") as client:
        async with client.environment("arithmetic").episode(split="train", index=7) as episode:
            result = await episode.call("submit", value=14)
            print(episode.task.id, result.reward, result.end_reason)


asyncio.run(main())
