import asyncio

from mcp import Client

from ludus.client import connect


async def main() -> None:
    async with connect("http://127.0.0.1:8000") as trainer:
        async with trainer.environment("treasure_hunt").episode(split="validation", index=3) as episode:
            assert episode.play_url is not None
            async with Client(episode.play_url) as agent:
                print([tool.name for tool in (await agent.list_tools()).tools])
                print((await agent.call_tool("dig", {"metre": 1})).content)
            print((await episode.rewards()).total)


asyncio.run(main())
