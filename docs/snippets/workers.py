import asyncio
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from ludus.client import ServerAddress, TaskAddress

SERVER = ServerAddress("http://127.0.0.1:8000")


async def play(address: TaskAddress) -> float | None:
    async with address.drive() as driver:
        await driver.act("I give up.")
        return (await driver.finish()).value


def work(row: dict[str, Any]) -> float | None:
    return asyncio.run(play(TaskAddress.from_json(row["ludus"])))


if __name__ == "__main__":
    tasks = [SERVER.task("treasure_hunt", "validation", f"beach-{index}", seed=1) for index in range(4)]
    rows = [{"ludus": task.to_json()} for task in tasks]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        print(list(pool.map(work, rows)))
