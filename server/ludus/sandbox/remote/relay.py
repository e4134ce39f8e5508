"""A background process of a host's sandbox, as the host's side passes it on to its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ludus.sandbox.core.errors import SandboxFailed, SandboxInputClosed
from ludus.sandbox.core.processes import WINDOW, OutputStream, Process
from ludus.sandbox.core.terminal import Terminal
from ludus.sandbox.remote.channel import Channel
from ludus.sandbox.remote.messages import PIECE, WireError


class ProcessRelay:
    """Sends the output of a process within the client's windows, and takes the client's requests about it.

    Args:
        channel: carries the events.
        stream: the stream of the request that started the process.
        handle: the process, or the terminal on which it runs; what the terminal shows is drawn by the client.
        on_end: called once, when everything was sent.
    """

    def __init__(self, channel: Channel, stream: int, handle: Process | Terminal, on_end: Callable[[], None]) -> None:
        self._channel = channel
        self._stream = stream
        self._handle = handle
        self._process = handle if isinstance(handle, Process) else handle.process
        self._on_end = on_end
        outputs = (self._process.stdout, self._process.stderr)[: 2 if isinstance(handle, Process) else 1]
        self._rooms = [WINDOW for _ in outputs]
        self._has_room = [asyncio.Event() for _ in outputs]
        self._requests: asyncio.Queue[tuple[dict[str, Any], bytes]] = asyncio.Queue()
        self._unwritten = 0
        self._abandoned: asyncio.Task[None] | None = None
        tending = asyncio.get_running_loop().create_task(self._tend())
        self._outputs = [asyncio.create_task(self._send_output(*numbered)) for numbered in enumerate(outputs)]
        self._ending = asyncio.create_task(self._send_end(tending))

    def hear(self, event: dict[str, Any], body: bytes) -> None:
        """Take a request of the client.

        Raises:
            WireError: it has sent more than its window allows, or nothing that is known.
        """
        op = event["op"]
        if op == "grant":
            number = int(event["stream"])
            if 0 <= number < len(self._rooms):
                self._rooms[number] = min(WINDOW, self._rooms[number] + int(event["size"]))
                self._has_room[number].set()
        elif op == "kill":
            self._process.request_kill()
        elif op == "abandon":
            self.close()
        elif op in ("input", "signal", "resize"):
            self._unwritten += len(body)
            if self._unwritten > WINDOW + PIECE or self._requests.qsize() > 10_000:
                raise WireError("the client has sent more input of a process than its window allows")
            self._requests.put_nowait((event, body))
        else:
            raise WireError(f"a process has no operation {op!r}")

    def close(self) -> None:
        """End the process, and drop its output."""
        if self._abandoned is None:
            self._abandoned = asyncio.get_running_loop().create_task(self._abandon())

    async def wait(self) -> None:
        """Wait until the end of the process was sent."""
        await asyncio.gather(self._ending, return_exceptions=True)

    async def _abandon(self) -> None:
        for task in self._outputs:
            task.cancel()
        await self._process.aclose()

    async def _tend(self) -> None:
        """Carry out the client's requests one after another."""
        while True:
            event, body = await self._requests.get()
            try:
                await self._carry_out(event, body)
            except SandboxInputClosed:
                if self._process.end is None:
                    self._channel.post_event(self._stream, {"refuses": True})
            except (SandboxFailed, ValueError):
                continue  # the end of the process follows; bad numbers are refused by the client's side
            finally:
                self._unwritten -= len(body)

    async def _carry_out(self, event: dict[str, Any], body: bytes) -> None:
        if event["op"] == "signal":
            await self._process.signal(int(event["number"]), group=bool(event["group"]))
        elif event["op"] == "resize":
            if isinstance(self._handle, Terminal):
                await self._handle.resize(int(event["rows"]), int(event["columns"]))
        else:
            if body:
                await self._process.write(body)
                self._channel.post_event(self._stream, {"wrote": len(body)})
            if event["eof"]:
                await self._process.close_stdin()

    async def _send_output(self, number: int, output: OutputStream) -> None:
        try:
            while True:
                while self._rooms[number] <= 0:
                    self._has_room[number].clear()
                    await self._has_room[number].wait()
                data = await output.read(min(PIECE, self._rooms[number]))
                if not data:
                    break
                self._rooms[number] -= len(data)
                await self._channel.send_event(self._stream, {"stream": number}, data)
        except SandboxFailed:
            pass  # the loss follows
        finally:
            self._channel.post_event(self._stream, {"eof": True, "stream": number})

    async def _send_end(self, tending: asyncio.Task[None]) -> None:
        try:
            end = await self._process.wait()
            self._channel.post_event(self._stream, {"ended": asdict(end)})
        except SandboxFailed as error:
            self._channel.post_event(self._stream, {"lost": error.message})
        finally:
            tending.cancel()
            await asyncio.gather(tending, *self._outputs, return_exceptions=True)
            self._on_end()
