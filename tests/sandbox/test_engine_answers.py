"""What an engine says at once with its answer is heard."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from sandboxing import opened, settings_of

from ludus.sandbox.container import _read
from ludus.sandbox.container_results import Output


@asynccontextmanager
async def together(engine: str, path: Path) -> AsyncIterator[str]:
    """The address of a proxy that keeps the head of an answer to `exec` back until a shell's first words come, too."""

    connections: set[asyncio.Task[None] | None] = set()
    ends: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())
        there, answers = await asyncio.open_unix_connection(engine.removeprefix("unix://"))
        ends.extend((writer, answers))
        executed = False

        async def ask() -> None:
            nonlocal executed
            while data := await reader.read(1 << 16):
                executed = executed or (b"POST " in data and b"/exec/" in data and b"/start" in data)
                answers.write(data)
            answers.write_eof()

        asking = asyncio.create_task(ask())
        with suppress(ConnectionError):
            while data := await there.read(1 << 16):
                if executed and data.endswith(b"\r\n\r\n"):
                    data += await there.read(1 << 16)
                writer.write(data)
        for end in (writer, answers):
            end.transport.abort()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    server = await asyncio.start_unix_server(carry, path)
    async with server:
        yield f"unix://{path}"
        for end in ends:
            end.transport.abort()
        await asyncio.gather(*(one for one in connections if one is not None))


async def test_a_shells_first_words_may_come_with_the_head_of_the_engines_answer(
    engine_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with together(engine_address, tmp_path / "sock") as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        provider = await opened("docker")
        async with asyncio.timeout(50):
            box = await provider.create(settings_of("docker"))
            assert (await box.run(["echo", "heard"])).text == "heard\n"
            await box.write("file", b"x" * 100_000)
            assert len(await box.read("file")) == 100_000
        await provider.aclose()


async def test_output_before_a_reset_is_kept() -> None:
    """An engine that closes a connection with unread input in it resets the connection, behind the output."""
    own, engines = socket.socketpair()
    own.setblocking(False)
    own.send(b"input that nothing reads")
    engines.send(struct.pack(">BxxxI", 1, 5) + b"hello")
    engines.close()
    output = Output(100)
    with own:
        assert await _read(own, output) is False
    assert output.parts[1] == b"hello"


async def test_output_that_ends_in_order_is_no_reset() -> None:
    own, engines = socket.socketpair()
    own.setblocking(False)
    engines.send(struct.pack(">BxxxI", 2, 4) + b"oops")
    engines.close()
    output = Output(100)
    with own:
        assert await _read(own, output) is True
    assert output.parts[2] == b"oops"
