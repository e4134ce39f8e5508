"""What runs in the sandbox of a harness: a relay to the hub's socket, and the harness in a process of its own.

child relay COMMAND…    listens on loopback, runs COMMAND with the addresses in its environment, returns its status
child own               the hub's own harness
child entry NAME        the published harness with this entry point
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
from collections.abc import Sequence
from typing import Any

from ludus.hub.verified.places import DOOR, SOCKET

_BLOCK = 64 * 1024


async def relay(command: Sequence[str]) -> int:
    """Run a command whose model and episode are at addresses on loopback, and return its exit code."""
    server = await asyncio.start_server(_pass_on, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    variables = {
        **os.environ, "LUDUS_PLAY_URL": f"{base}/play", "OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_KEY": "none",
        "NO_PROXY": "*", "no_proxy": "*",
    }  # fmt: skip
    async with server:
        process = await asyncio.create_subprocess_exec(*command, env=variables)
        code = await process.wait()
    return code if code >= 0 else 128 - code


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        out_reader, out_writer = await asyncio.open_unix_connection(f"{DOOR}/{SOCKET}")
    except OSError:
        writer.close()
        return
    await asyncio.gather(_copy(reader, out_writer), _copy(out_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_BLOCK):
            writer.write(data)
            await writer.drain()
    writer.close()


def call(harness: Any) -> None:
    """Call a harness: a function, or one that is awaited."""
    done = harness(
        play_url=os.environ["LUDUS_PLAY_URL"], base_url=os.environ["OPENAI_BASE_URL"], model=os.environ["LUDUS_MODEL"]
    )
    if inspect.isawaitable(done):
        asyncio.run(_wait_for(done))


async def _wait_for(done: Any) -> None:
    await done


def main(arguments: Sequence[str]) -> int:
    """Do what the arguments say, and return the exit code."""
    what, *rest = arguments
    if what == "relay":
        return asyncio.run(relay(rest))
    if what == "own":
        from ludus.hub.verified.own_harness import play

        call(play)
        return 0
    from importlib.metadata import entry_points

    from ludus.registry.types.verified import HARNESS_GROUP

    (found,) = entry_points(group=HARNESS_GROUP, name=rest[0])
    call(found.load())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
