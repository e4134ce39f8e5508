"""One client of `ludus sandboxd`: its sandboxes, and the requests that it has sent."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from ludus.protocol.errors import LudusError
from ludus.sandbox.core.errors import SandboxFailed, SandboxLimitReached, SandboxUnsupported
from ludus.sandbox.core.model import Sandbox, SandboxProvider, SandboxSettings, Snapshot
from ludus.sandbox.remote import messages as m
from ludus.sandbox.remote.channel import Assembly, Channel
from ludus.sandbox.remote.relay import ProcessRelay
from ludus.sandbox.remote.tunnel import Tunnel

__all__ = ["HostLimits"]


log = logging.getLogger("ludus.sandboxd")

Reply = tuple[dict[str, Any], bytes]

_CONNECTIONS: Final = 256
"""Connections to the ports of one sandbox at one time."""
_REQUESTS: Final = 4096
"""Requests of one client at one time."""


class Stream(Protocol):
    """A process or a connection of a sandbox."""

    def hear(self, event: dict[str, Any], body: bytes) -> None:
        """Take an event of the client."""
        ...

    def close(self) -> None:
        """End it."""
        ...

    async def wait(self) -> None:
        """Wait until it has ended."""
        ...


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What a host allows its clients."""

    clients: int = 64
    """Clients at one time."""
    boxes: int = 256
    """Sandboxes at one time."""
    boxes_per_client: int = 256
    """Sandboxes of one client at one time."""
    bytes_per_client: int = 1024 * 1024 * 1024
    """Bytes of the requests of one client that have not arrived completely or are being carried out."""
    readonly: tuple[str, ...] = ()
    """The folders of the host that sandboxes may show by `SandboxSettings.readonly`, each with all below it."""
    known: tuple[tuple[str, str], ...] = ()
    """The same, of folders that clients know by other paths: (path of the clients, folder of the host)."""

    def locate(self, path: str) -> str | None:
        """Return the path on the host that clients name `path`; None if sandboxes may not show it."""
        try:
            return self._locate(os.path.normpath(path))
        except OSError:  # it leads through what even this process may not follow
            return None

    def _locate(self, named: str) -> str | None:
        for their_path, local_path in self.known:
            if _is_below(named, their_path):
                real = os.path.realpath(os.path.join(local_path, os.path.relpath(named, their_path)))
                return real if _is_below(real, os.path.realpath(local_path)) else None
        return named if any(_is_below(os.path.realpath(named), root) for root in self.readonly) else None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


class Host(Protocol):
    """What a session needs of the daemon."""

    provider: SandboxProvider
    limits: HostLimits

    def reserve(self) -> None:
        """Count a sandbox; raise `HostFull` if there is no room."""
        ...

    def release(self) -> None:
        """Count one sandbox less."""
        ...

    def load(self) -> m.Load:
        """Return the number of sandboxes."""
        ...


class Session:
    """A client's session. It ends by `aclose`, when the client says so or has been gone for too long.

    Args:
        host: the daemon.
        name: the session's id, of which logs show a part.
    """

    def __init__(self, host: Host, name: str) -> None:
        self.name = name[:8]
        self.channel = Channel(self._receive, describe=lambda: host.load().model_dump_json().encode())
        self.ended = asyncio.Event()
        """Set when the client has said goodbye, or the session was closed."""
        self._host = host
        self._assembly = Assembly()
        self._working: dict[int, asyncio.Task[None]] = {}
        self._closing: dict[int, asyncio.Task[None]] = {}
        self._in_work = 0
        """Bytes of the requests that are being carried out."""
        self._boxes: dict[int, Sandbox] = {}
        self._starting = 0
        self._streams: dict[int, tuple[int, Stream]] = {}
        """By their numbers: the sandbox's number, and the process or connection."""
        self._operations: dict[str, Callable[[int, Any, bytes], Awaitable[Reply]]] = {
            "check": self._check, "create": self._create, "run": self._run, "spawn": self._spawn,
            "connect": self._connect, "read": self._read, "write": self._write, "list": self._list,
            "snapshot": self._snapshot, "restore": self._restore, "fork": self._fork, "close": self._close,
            "goodbye": self._goodbye,
        }  # fmt: skip

    async def aclose(self) -> None:
        """Close all sandboxes of the client."""
        self.ended.set()
        self.channel.close()
        for task in self._working.values():
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)
        await asyncio.gather(
            *(self._end_box(number) for number in {*self._boxes, *self._closing}), return_exceptions=True
        )

    def _receive(self, frame: m.Frame) -> None:
        if frame.kind == m.Kind.EVENT:
            self._take_event(frame)
        elif frame.kind == m.Kind.CANCEL:
            self._cancel(frame.stream)
        elif frame.kind == m.Kind.REQUEST:
            self._take_request(frame)
        else:
            raise m.WireError(f"a client does not send frames of kind {frame.kind}")

    def _take_event(self, frame: m.Frame) -> None:
        stream = self._streams.get(frame.stream)
        event, body = m.unpack(frame.payload)
        if stream is not None:
            try:
                stream[1].hear(event, body)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise m.WireError(f"an event cannot be read: {error!r}") from None

    def _cancel(self, number: int) -> None:
        self._assembly.drop(number)
        if (task := self._working.get(number)) is not None:
            task.cancel()
        if (stream := self._streams.get(number)) is not None:
            stream[1].close()
        elif number in self._boxes:
            self._start_closing(number)

    def _take_request(self, frame: m.Frame) -> None:
        number = frame.stream
        if number in self._working:
            raise m.WireError(f"request {number} was sent twice")
        data = self._assembly.add(frame)
        size = self._assembly.size + self._in_work + (0 if data is None else len(data))
        if size > self._host.limits.bytes_per_client:
            raise m.WireError(
                f"requests of {size:,} bytes at one time are more than this host allows a client: "
                f"{self._host.limits.bytes_per_client:,}"
            )
        if len(self._working) >= _REQUESTS:
            raise m.WireError(f"more than {_REQUESTS:,} requests at one time are more than a client may send")
        if data is None:
            return
        size = len(data)
        self._in_work += size
        task = asyncio.get_running_loop().create_task(self._answer(number, data))
        self._working[number] = task

        def forget(_: asyncio.Task[None]) -> None:
            self._working.pop(number, None)
            self._in_work -= size

        task.add_done_callback(forget)

    async def _answer(self, number: int, data: bytes) -> None:
        """Carry out a request, and send its reply."""
        body = b""
        try:
            head, body = m.unpack(data)
            del data
            request = m.read_request(head)
            reply, body = await self._operations[request.op](number, request, body)
        except asyncio.CancelledError:
            reply, body = m.describe_error(SandboxFailed("the request was canceled")), b""
            if self.ended.is_set():
                raise
        except (LudusError, ValueError) as error:
            reply, body = m.describe_error(error), b""
        except Exception as error:
            log.exception("client %s: a request failed unexpectedly", self.name)
            reply = m.describe_error(SandboxFailed(f"the host failed unexpectedly: {type(error).__name__}: {error}"))
            body = b""
        await self.channel.send(m.Kind.REPLY, number, m.pack(reply, body))

    # ── sandboxes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _find(self, number: int) -> Sandbox:
        box = self._boxes.get(number)
        if box is None:
            raise SandboxFailed("the sandbox is gone: it was closed")
        return box

    def _local(self, settings: SandboxSettings) -> SandboxSettings:
        """Return the settings for this host's own backend.

        Raises:
            SandboxUnsupported: they name a folder of this host that its clients may not see.
        """
        if settings.build is not None:
            raise SandboxUnsupported(
                "sandboxd cannot build images from folders of its clients: push the image to a registry and set `image`"
            )
        paths = []
        for path, inside in settings.readonly:
            local_path = self._host.limits.locate(path)
            if local_path is None:
                raise SandboxUnsupported(
                    f"`readonly` names {path}, which this host does not show: start its sandboxd with "
                    f"`--readonly {path}`"
                )
            paths.append((local_path, inside))
        return settings.model_copy(update={"provider": self._host.provider.name, "warm": 0, "readonly": tuple(paths)})

    async def _check(self, number: int, request: m.Check, body: bytes) -> Reply:
        await self._host.provider.prepare(self._local(request.settings))
        return {}, b""

    async def _create(self, number: int, request: m.Create, body: bytes) -> Reply:
        settings = self._local(request.settings)
        return await self._add(number, lambda: self._host.provider.create(settings))

    async def _fork(self, number: int, request: m.Fork, body: bytes) -> Reply:
        return await self._add(number, self._find(request.box).fork)

    async def _add(self, number: int, make: Callable[[], Awaitable[Sandbox]]) -> Reply:
        """Make a sandbox, and count it from before it starts until it has ended."""
        if len(self._boxes) + self._starting >= self._host.limits.boxes_per_client:
            raise m.HostFull(f"a client of this host has at most {self._host.limits.boxes_per_client} sandboxes")
        self._host.reserve()
        self._starting += 1
        try:
            self._boxes[number] = await make()
        except BaseException:
            self._host.release()
            raise
        finally:
            self._starting -= 1
        log.info("client %s: sandbox %d was created", self.name, number)
        return {"load": self._host.load().model_dump()}, b""

    async def _close(self, number: int, request: m.Close, body: bytes) -> Reply:
        await self._end_box(request.box)
        return {"load": self._host.load().model_dump()}, b""

    async def _end_all(self) -> None:
        numbers = {*self._boxes, *self._closing}
        await asyncio.gather(*(self._end_box(number) for number in numbers), return_exceptions=True)

    async def _end_box(self, number: int) -> None:
        """Close a sandbox and return when it has ended."""
        if (task := self._start_closing(number)) is not None:
            await asyncio.shield(task)

    def _start_closing(self, number: int) -> asyncio.Task[None] | None:
        if (box := self._boxes.pop(number, None)) is not None:
            self._closing[number] = asyncio.get_running_loop().create_task(self._close_box(number, box))
        return self._closing.get(number)

    async def _close_box(self, number: int, box: Sandbox) -> None:
        streams = [stream for of, stream in tuple(self._streams.values()) if of == number]
        for stream in streams:
            stream.close()
        try:
            await box.aclose()
            await asyncio.gather(*(stream.wait() for stream in streams))
        finally:
            self._host.release()
            del self._closing[number]
            log.info("client %s: sandbox %d was closed", self.name, number)

    async def _goodbye(self, number: int, request: m.Goodbye, body: bytes) -> Reply:
        await self._end_all()
        self.ended.set()
        return {}, b""

    # ── what is done in them ───────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, number: int, request: m.Run, body: bytes) -> Reply:
        box = self._find(request.box)
        result = await box.run(request.argv, stdin=body, env=request.env, cwd=request.cwd, limits=request.limits)
        return m.describe_result(result)

    async def _spawn(self, number: int, request: m.Spawn, body: bytes) -> Reply:
        box = self._find(request.box)
        if request.terminal is None:
            handle: Any = await box.spawn(request.argv, env=request.env, cwd=request.cwd, limits=request.limits)
        else:
            rows, columns = request.terminal
            handle = await box.open_terminal(
                request.argv, rows=rows, columns=columns, env=request.env, cwd=request.cwd, limits=request.limits
            )
        self._streams[number] = request.box, ProcessRelay(self.channel, number, handle, lambda: self._forget(number))
        return {}, b""

    async def _connect(self, number: int, request: m.ConnectPort, body: bytes) -> Reply:
        tunnels = sum(of == request.box and isinstance(stream, Tunnel) for of, stream in self._streams.values())
        if tunnels >= _CONNECTIONS:
            raise SandboxLimitReached(f"{_CONNECTIONS} connections to the sandbox are open, as many as a host allows")
        connected = await self._find(request.box).connect(request.port)
        self._streams[number] = request.box, Tunnel(self.channel, number, connected, lambda: self._forget(number))
        return {}, b""

    def _forget(self, number: int) -> None:
        self._streams.pop(number, None)

    async def _read(self, number: int, request: m.Read, body: bytes) -> Reply:
        return {}, await self._find(request.box).read(request.path, limit=request.limit)

    async def _write(self, number: int, request: m.Write, body: bytes) -> Reply:
        await self._find(request.box).write(request.path, body, executable=request.executable)
        return {}, b""

    async def _list(self, number: int, request: m.ListDirectory, body: bytes) -> Reply:
        return {"entries": [asdict(entry) for entry in await self._find(request.box).list(request.path)]}, b""

    async def _snapshot(self, number: int, request: m.TakeSnapshot, body: bytes) -> Reply:
        return {}, (await self._find(request.box).snapshot()).data

    async def _restore(self, number: int, request: m.Restore, body: bytes) -> Reply:
        await self._find(request.box).restore(Snapshot(body))
        return {}, b""
