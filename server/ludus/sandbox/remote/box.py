"""A sandbox on another machine, as this server uses it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ludus.protocol.errors import LudusError
from ludus.sandbox.base import Command, SandboxBase
from ludus.sandbox.core.errors import SandboxFailed
from ludus.sandbox.core.model import FileInfo, RunResult, SandboxSettings, Snapshot
from ludus.sandbox.core.processes import Process, ProcessEnd
from ludus.sandbox.process_link import ProcessLink
from ludus.sandbox.remote import messages as m
from ludus.sandbox.remote.host import HostSession
from ludus.sandbox.remote.tunnel import Tunnel

if TYPE_CHECKING:
    from ludus.sandbox.core.terminal import Terminal

__all__ = ["RemoteBox"]


_MARGIN_SECONDS: Final = 120.0
"""How much longer than a command's limit this server waits: the host ends the command itself."""


class _RemoteLink(ProcessLink):
    """The link between a background process and its host."""

    def __init__(
        self, session: HostSession, command: Command, on_end: Callable[[], None], links: set[_RemoteLink]
    ) -> None:
        number = session.number()
        self._links = links
        super().__init__(number, self._send, self._detach_from, command.terminal, on_end)
        self._session = session
        session.streams[number] = self

    def _send(self, data: bytes = b"", **fields: Any) -> None:
        for start in range(0, max(1, len(data)), m.PIECE):
            part = data[start : start + m.PIECE]
            is_last = start + m.PIECE >= len(data)
            self._session.channel.post_event(
                self.number, {**fields, "eof": fields["eof"] and is_last} if "eof" in fields else fields, part
            )

    def _detach_from(self, number: int) -> None:
        self._links.discard(self)
        self._session.streams.pop(number, None)

    def _read_end(self, described: dict[str, Any]) -> ProcessEnd:
        return m.read_end(described)

    def hear(self, event: dict[str, Any], blob: bytes) -> None:
        """See `ProcessLink.hear`."""
        if "lost" in event:
            self.lose(SandboxFailed(str(event["lost"])))
        else:
            super().hear(event, blob)


class RemoteBox(SandboxBase):
    """A sandbox of a host.

    Args:
        session: this server's session on the host.
        number: the sandbox's number there.
        settings, another, on_close: see `SandboxBase`.
        adopt: registers a fork.
    """

    def __init__(
        self, session: HostSession, number: int, settings: SandboxSettings,
        another: Callable[[SandboxSettings], Awaitable[SandboxBase]], on_close: Callable[[SandboxBase], None],
        adopt: Callable[[SandboxBase], Awaitable[None]],
    ) -> None:  # fmt: skip
        super().__init__(settings, {}, another, on_close)
        self._session = session
        self._number = number
        self._adopt = adopt
        self._gone: SandboxFailed | None = None
        self._links: set[_RemoteLink] = set()
        self._tunnels: set[Tunnel] = set()
        self._asking: asyncio.Task[Any] | None = None
        session.on_loss.add(self._lose)

    @property
    def alive(self) -> bool:
        """See `SandboxBase.alive`."""
        return self._closing is None and self._gone is None and self._session.connected

    def _lose(self, error: SandboxFailed) -> None:
        """Note that the sandbox does not exist any more."""
        self._gone = self._gone or error
        self._session.on_loss.discard(self._lose)
        for link in tuple(self._links):
            link.lose(error)
        for tunnel in tuple(self._tunnels):
            tunnel.close()

    async def _ask(
        self, op: str, body: bytes = b"", *, seconds: float = 300.0, number: int | None = None, **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request about this sandbox; a failure of the sandbox closes it."""
        if self._closing is not None or self._gone is not None:
            raise self._gone or SandboxFailed("the sandbox is gone: it was closed")
        try:
            return await self._session.request(op, body, seconds=seconds, number=number, box=self._number, **fields)
        except SandboxFailed as error:
            if not isinstance(error, m.HostFull) and self._closing is None:
                self._gone = self._gone or error
                await self.aclose()
            raise

    async def _ask_in_turn(self, op: str, body: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        return await self._in_turn(lambda: self._ask_stoppable(op, body, **fields))

    async def _ask_stoppable(self, op: str, body: bytes, **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Send a request that `_stop` can give up."""
        asking = asyncio.get_running_loop().create_task(self._ask(op, body, **fields))
        self._asking = asking
        try:
            return await asking
        finally:
            self._asking = None

    def _stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _run(self, command: Command) -> RunResult:
        seconds = command.limits.seconds + _MARGIN_SECONDS
        try:
            reply = await self._ask_stoppable("run", command.stdin, seconds=seconds, **_described(command))
        except asyncio.CancelledError:
            raise SandboxFailed("the command was canceled") from None
        return m.read_result(*reply)

    async def _spawn(self, command: Command, on_end: Callable[[], None]) -> Process | Terminal:
        link = _RemoteLink(self._session, command, on_end, self._links)
        self._links.add(link)
        try:
            await self._ask("spawn", number=link.number, terminal=command.terminal, **_described(command))
        except BaseException:
            self._links.discard(link)
            self._session.streams.pop(link.number, None)
            raise
        return link.handle

    async def _connect(self, port: int) -> socket.socket:
        number = self._session.number()
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)

        def forget() -> None:
            self._session.streams.pop(number, None)
            self._tunnels.discard(tunnel)

        tunnel = Tunnel(self._session.channel, number, far, forget)
        self._tunnels.add(tunnel)
        self._session.streams[number] = tunnel
        try:
            await self._ask("connect", number=number, port=port)
        except BaseException:
            tunnel.close()
            near.close()
            raise
        return near

    async def read(self, path: str, *, limit: int = 16 * 1024 * 1024) -> bytes:
        """See `Sandbox.read`."""
        return (await self._ask_in_turn("read", path=str(path), limit=limit))[1]

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """See `Sandbox.write`."""
        await self._ask_in_turn("write", data, path=str(path), executable=executable)

    async def list(self, path: str = ".") -> tuple[FileInfo, ...]:
        """See `Sandbox.list`."""
        reply, _ = await self._ask_in_turn("list", path=str(path))
        return tuple(FileInfo(**entry) for entry in reply["entries"])

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        return Snapshot((await self._ask_in_turn("snapshot"))[1])

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        await self._ask_in_turn("restore", snapshot.data)

    async def fork(self) -> SandboxBase:
        """See `Sandbox.fork`. The fork is on the same host, or on another one if this one is full."""
        number = self._session.number()
        try:
            await self._in_turn(lambda: self._ask("fork", number=number))
        except m.HostFull:
            return await super().fork()
        except asyncio.CancelledError:
            self._session.cancel(number)
            raise
        fork = RemoteBox(self._session, number, self.settings, self._another, self._on_close, self._adopt)
        await self._adopt(fork)
        return fork

    async def _rebuild(self) -> None:
        raise SandboxFailed("a sandbox on another machine is rebuilt there")

    def _kill(self) -> None:
        if self._session.lost is None:
            self._session.cancel(self._number)

    async def _close(self) -> None:
        gone = self._gone or SandboxFailed("the sandbox is gone: it was closed")
        self._session.on_loss.discard(self._lose)
        tunnels = tuple(self._tunnels)
        self._lose(gone)
        try:
            if self._session.lost is None:
                await self._session.request("close", box=self._number, seconds=_MARGIN_SECONDS)
        except LudusError:
            return  # the host ends it with the session
        finally:
            await asyncio.gather(*(tunnel.wait() for tunnel in tunnels))


def _described(command: Command) -> dict[str, Any]:
    return {"argv": command.argv, "env": command.env, "cwd": command.cwd, "limits": command.limits.model_dump()}
