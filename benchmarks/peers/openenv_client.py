"""OpenEnv's own asynchronous client against its own server: `python openenv_client.py WORK URL PID AT_ONCE SECONDS`.

WORK is `steps` (each of AT_ONCE clients steps its session), `episodes` (a new session for each: connect, reset, one
step, close) or `resets` (a session that stays, reset before each step; a session is one environment object, so episodes
are not isolated from each other). Prints a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from openenv.core.generic_client import GenericEnvClient

WORK, URL, PID, AT_ONCE, SECONDS = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])


def server_cpu() -> float:
    fields = Path(f"/proc/{PID}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def step(client: GenericEnvClient) -> None:
    result = await client.step({"text": "hello"})
    if result.observation["text"] != "hello":
        raise RuntimeError(result)


class Counter:
    def __init__(self) -> None:
        self.done = 0
        self.until = float("inf")


async def worker(counter: Counter, ready: asyncio.Barrier) -> None:
    if WORK == "episodes":
        await ready.wait()
        while time.perf_counter() < counter.until:
            async with GenericEnvClient(base_url=URL) as client:
                await client.reset()
                await step(client)
            counter.done += 1
        return
    async with GenericEnvClient(base_url=URL) as client:
        await client.reset()
        await ready.wait()
        while time.perf_counter() < counter.until:
            if WORK == "resets":
                await client.reset()
            await step(client)
            counter.done += 1


async def main() -> None:
    counter, ready = Counter(), asyncio.Barrier(AT_ONCE + 1)
    workers = [asyncio.create_task(worker(counter, ready)) for _ in range(AT_ONCE)]
    await ready.wait()
    began, cpu, server = time.perf_counter(), time.process_time(), server_cpu()
    counter.until = began + SECONDS
    await asyncio.sleep(SECONDS)
    seconds, cpu, server = time.perf_counter() - began, time.process_time() - cpu, server_cpu() - server
    done = counter.done
    await asyncio.gather(*workers)
    print(json.dumps({"per_second": done / seconds, "client_us": cpu / done * 1e6, "server_us": server / done * 1e6}))


if __name__ == "__main__":
    asyncio.run(main())
