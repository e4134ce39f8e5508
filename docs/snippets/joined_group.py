import asyncio
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from ludus.client import GroupMember, ServerAddress, group_seed

SIZE = 4


async def play(place: int) -> tuple[str, float | None]:
    server = ServerAddress("http://127.0.0.1:8000")
    task = server.task("treasure_hunt", "train", "beach-3", group_seed("my-run", "beach-3", epoch=0))
    async with task.drive(join=GroupMember("my-run/epoch-0/beach-3", SIZE, place)) as driver:
        await driver.act("I give up.")
        return driver.episode.group, (await driver.finish()).value


def work(place: int) -> tuple[str, float | None]:
    return asyncio.run(play(place))


if __name__ == "__main__":
    with ProcessPoolExecutor(SIZE, mp_context=get_context("spawn")) as pool:
        groups, values = zip(*pool.map(work, range(SIZE)), strict=True)
    print(len(set(groups)), "group", values)
