"""A sandbox that has our own program inside, as the server uses it; `box_process` carries the messages."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from ludus.sandbox.base import Command, SandboxBase
from ludus.sandbox.box_process import START_SECONDS, BoxProcess
from ludus.sandbox.core.endings import LimitName
from ludus.sandbox.core.errors import SandboxFailed, SandboxFileError, SandboxLimitReached, SandboxPortClosed
from ludus.sandbox.core.model import FileInfo, RunResult, SandboxSettings, Snapshot
from ludus.sandbox.core.processes import WINDOW, Process, ProcessEnd
from ludus.sandbox.process_link import ProcessLink

if TYPE_CHECKING:
    from ludus.sandbox.core.terminal import Terminal

__all__ = ["RunnerBox"]


_OVERTIME_SECONDS: Final = 2.0
"""How long after a command's time limit the server ends the sandbox, if the program inside did not end the command."""
_FILE_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 10.0


class _Job(ProcessLink):
    """The link between a background process and the program inside."""

    def __init__(self, process: BoxProcess, command: Command, on_end: Callable[[], None]) -> None:
        number = process.number()
        super().__init__(number, partial(process.tend, number), process.detach, command.terminal, on_end)
        self.broken_before = process.broken()
        self.overtime: asyncio.TimerHandle | None = None
        self._process = process

    def _read_end(self, described: dict[str, Any]) -> ProcessEnd:
        return _process_end(described, self.broken_before, self._process.broken())

    def _leave(self) -> None:
        if self.overtime is not None:
            self.overtime.cancel()
        super()._leave()


class RunnerBox(SandboxBase):
    """A sandbox whose program inside runs the commands and the file operations.

    Args:
        process: the running sandbox.
        settings, env, another, on_close: see `SandboxBase`.
        restart: starts a new process after a command has ended this one.
    """

    def __init__(
        self, process: BoxProcess, settings: SandboxSettings, env: Mapping[str, str],
        another: Callable[[SandboxSettings], Awaitable[SandboxBase]], on_close: Callable[[SandboxBase], None],
        restart: Callable[[], Awaitable[BoxProcess]],
    ) -> None:  # fmt: skip
        super().__init__(settings, env, another, on_close)
        self._process = process
        self._restart = restart
        self._unwanted = False
        self._jobs: set[_Job] = set()
        self._asks = 0
        """The number of commands and file operations that wait for a reply; each finds out itself if it is lost."""
        self._losing: asyncio.Task[None] | None = None
        self._connections: WeakSet[socket.socket] = WeakSet()
        process.on_loss = self._note_loss
        if (listener := process.listener()) is not None:
            self._open_egress(listener)

    @property
    def alive(self) -> bool:
        """See `SandboxBase.alive`."""
        return self._closing is None and (self._lost or self._process.alive)

    def _stop(self) -> None:
        self._unwanted = True
        self._process.cancel()

    async def _make_usable(self) -> None:
        self._unwanted = False
        await super()._make_usable()

    async def _rebuild(self) -> None:
        files = await self._process.save_files(self.limits.disk)
        self._process = await self._restart()
        self._process.on_loss = self._note_loss
        if self._egress is not None and (listener := self._process.listener()) is not None:
            await self._egress.move(listener)
        if files is not None:
            try:
                async with asyncio.timeout(_FILE_SECONDS):
                    reply, _ = await self._process.exchange({"op": "restore"}, files.data)
            except (TimeoutError, EOFError) as error:
                raise SandboxFailed(f"rebuilding the sandbox failed: {error or 'it does not answer'}") from None
            if "failed" in reply:
                raise SandboxFailed(f"rebuilding the sandbox failed: {reply['failed']}")

    async def _run(self, command: Command) -> RunResult:
        if self._unwanted:
            raise SandboxFailed("the command was canceled before it started")
        process, loop = self._process, asyncio.get_running_loop()
        before, asked_at = process.broken(), loop.time()
        clock, begun_at = asyncio.timeout(START_SECONDS), None

        def begin() -> None:
            nonlocal begun_at
            begun_at = loop.time()
            clock.reschedule(begun_at + command.limits.seconds + _OVERTIME_SECONDS)

        limit: LimitName | None
        request = {"op": "run", **_described(command)}
        self._asks += 1
        try:
            async with clock:
                reply, output = await process.exchange(request, command.stdin, begin)
            return _result(reply, output, before, process.broken())
        except TimeoutError:
            limit, reason = "seconds", "it does not answer"
        except EOFError as error:
            limit, reason = "memory" if await process.ran_out_of_memory(before[0]) else None, str(error)
        finally:
            self._asks -= 1
        # In an isolated sandbox, a command can affect the program inside only by using up the memory. Without
        # isolation, any command can stop or kill it.
        caused = limit == "memory" or not process.isolated or (limit == "seconds" and begun_at is not None)
        if self._closing is not None or not caused:
            await self.aclose()
            raise SandboxFailed(f"the sandbox is gone: {reason}")
        await self._start_over(process)
        took = loop.time() - (asked_at if begun_at is None else begun_at)
        peak = command.limits.memory if limit == "memory" else 0
        return RunResult(b"", b"", None, signal.SIGKILL, limit, took, 0.0, peak, True, True, rebuilt=True)

    # ── background processes ───────────────────────────────────────────────────────────────────────────────────────

    async def _spawn(self, command: Command, on_end: Callable[[], None]) -> Process | Terminal:
        process = self._process
        try:
            return await self._spawn_in(process, command, on_end)
        except EOFError as error:
            await self._recover(process, str(error))
        await self._wait_until_usable()
        try:
            return await self._spawn_in(self._process, command, on_end)
        except EOFError as error:
            await self.aclose()
            raise SandboxFailed(f"the sandbox is gone: {error}") from None

    async def _spawn_in(self, process: BoxProcess, command: Command, on_end: Callable[[], None]) -> Process | Terminal:
        """Start a background process.

        Raises:
            EOFError: the sandbox has ended.
        """
        allowed = command.limits

        def end() -> None:
            self._jobs.discard(job)
            on_end()

        job = _Job(process, command, end)
        request: dict[str, Any] = {
            "op": "spawn", "id": job.number, "window": WINDOW, "terminal": command.terminal, **_described(command),
        }  # fmt: skip
        request["limits"] |= {
            "seconds": allowed.spawned_seconds, "cpu_seconds": allowed.spawned_cpu_seconds,
            "output": allowed.spawned_output,
        }  # fmt: skip
        self._jobs.add(job)
        try:
            if command.terminal is not None and not process.has_terminals:
                _pass_terminal(process)
            async with asyncio.timeout(START_SECONDS):
                reply, _ = await process.exchange(request, b"", on_event=job.hear)
            if "limit" in reply:
                raise SandboxLimitReached(reply["limit"])
            _check(reply)
        except TimeoutError:
            self._jobs.discard(job)
            await self.aclose()
            raise SandboxFailed("the sandbox is gone: it does not answer") from None
        except BaseException:
            job.abandon()
            process.detach(job.number)
            self._jobs.discard(job)
            raise
        if job in self._jobs:
            seconds = allowed.spawned_seconds + _OVERTIME_SECONDS
            job.overtime = asyncio.get_running_loop().call_later(seconds, self._note_loss)
        return job.handle

    async def _start_over(self, process: BoxProcess) -> None:
        """End a sandbox because of what its commands did; it is rebuilt before its next use."""
        await process.end(force=True)
        if process is not self._process:
            return
        self._lost = True
        for job in tuple(self._jobs):
            job.lose(ProcessEnd(None, signal.SIGKILL, None, 0.0, 0.0, 0, rebuilt=True))
        process.end_streams()

    async def _recover(self, process: BoxProcess, reason: str) -> None:
        """Start over if background processes caused the loss of the sandbox.

        Raises:
            SandboxFailed: they did not.
        """
        began = min((job.broken_before for job in self._jobs), default=process.broken())
        ran_out = await process.ran_out_of_memory(began[0])
        caused = ran_out or (bool(self._jobs) and not process.isolated)
        if self._closing is not None or not caused:
            if asyncio.current_task() is self._losing:
                self._losing = None  # otherwise `_close` would wait for this task, which waits for it
            await self.aclose()
            raise SandboxFailed(f"the sandbox is gone: {reason}")
        await self._start_over(process)

    def _note_loss(self) -> None:
        """Find out what a loss means that no command and no file operation has noticed."""
        if self._asks or self._closing is not None or self._losing is not None:
            return

        async def recover() -> None:
            with suppress(SandboxFailed):
                await self._recover(self._process, "it ended unexpectedly")
            self._losing = None

        self._losing = asyncio.get_running_loop().create_task(recover())

    # ── ports ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _connect(self, port: int) -> socket.socket:
        reason = ""
        for six in (False, True):
            request = {"op": "connect", "port": port, "six": six}
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    reply, _ = await self._process.exchange(request, b"")
            except TimeoutError:
                raise SandboxPortClosed(
                    f"port {port} of the sandbox does not accept a connection within {_CONNECT_SECONDS:g} s"
                ) from None
            except EOFError as error:
                await self._recover(self._process, str(error))
                raise SandboxPortClosed(f"the sandbox ended with what listened on its port {port}") from None
            if "closed" not in reply:
                _check(reply)
                connected = self._process.receive_socket()
                connected.setblocking(False)
                self._connections.add(connected)
                return connected
            reason = reason or reply["closed"]
        raise SandboxPortClosed(f"nothing accepts connections on port {port} of the sandbox: {reason}")

    # ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, request: dict[str, Any], blob: bytes = b"") -> tuple[dict[str, Any], bytes]:
        reply, data = await self._in_turn(lambda: self._exchange(request, blob))
        _check(reply)
        return reply, data

    async def _exchange(self, request: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
        for again in (True, False):
            await self._make_usable()
            process = self._process
            self._asks += 1
            try:
                async with asyncio.timeout(_FILE_SECONDS):
                    return await process.exchange({**request}, blob)
            except TimeoutError:
                reason = "it does not answer"
            except EOFError as error:
                reason = str(error)
            finally:
                self._asks -= 1
            if not again:
                break
            await self._recover(process, reason)
        await self.aclose()
        raise SandboxFailed(f"the sandbox is gone: {reason}")

    async def read(self, path: str, *, limit: int = 16 * 1024 * 1024) -> bytes:
        """See `Sandbox.read`."""
        return (await self._ask({"op": "read", "path": str(path), "limit": limit}))[1]

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """See `Sandbox.write`."""
        await self._ask({"op": "write", "path": str(path), "executable": executable}, data)

    async def list(self, path: str = ".") -> tuple[FileInfo, ...]:
        """See `Sandbox.list`."""
        reply, _ = await self._ask({"op": "list", "path": str(path)})
        return tuple(FileInfo(**entry) for entry in reply["entries"])

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        return Snapshot((await self._ask({"op": "snapshot"}))[1])

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        await self._ask({"op": "restore"}, snapshot.data)

    def _kill(self) -> None:
        self._process.kill()

    async def _close(self) -> None:
        if self._losing is not None:
            await asyncio.gather(self._losing, return_exceptions=True)
        await self._process.end()
        self._process.release()
        for job in tuple(self._jobs):
            job.lose(SandboxFailed("the sandbox is gone: it was closed"))
        self._process.end_streams()
        for connected in tuple(self._connections):
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)  # not closed: its descriptor belongs to the caller


def _described(command: Command) -> dict[str, Any]:
    return {
        "argv": command.argv, "cwd": command.cwd, "env": command.env, "limits": command.limits.model_dump(),
    }  # fmt: skip


def _pass_terminal(process: BoxProcess) -> None:
    """Create a terminal and send both ends to the program inside, which uses them for the request that follows."""
    ends = os.openpty()
    try:
        os.fchown(ends[1], process.user, -1)
        process.pass_descriptors(*ends)
    except PermissionError:
        process.pass_descriptors(*ends)
    finally:
        for end in ends:
            os.close(end)


def _process_end(reply: dict[str, Any], before: tuple[int, int], after: tuple[int, int]) -> ProcessEnd:
    limit, code = reply["limit"], reply["exit_code"]
    if limit is None and reply["signal"] == signal.SIGKILL and after[0] > before[0]:
        limit = "memory"
    return ProcessEnd(code, reply["signal"], limit, reply["seconds"], reply["cpu_seconds"], reply["peak_memory"])


def _check(reply: dict[str, Any]) -> None:
    """Raise the error that a reply reports: about files, which commands can cause, or about the sandbox itself."""
    if "error" in reply:
        raise SandboxFileError(reply["error"])
    if "failed" in reply:
        raise SandboxFailed(f"the sandbox failed: {reply['failed']}")


def _result(reply: dict[str, Any], output: bytes, before: tuple[int, int], after: tuple[int, int]) -> RunResult:
    _check(reply)
    limit, code = reply["limit"], reply["exit_code"]
    if limit is None and code != 0:
        if after[0] > before[0]:
            limit = "memory"
        elif after[1] > before[1]:
            limit = "processes"
    return RunResult(
        output[: reply["out"]], output[reply["out"] :], code, reply["signal"], limit, reply["seconds"],
        reply["cpu_seconds"], reply["peak_memory"], *reply["cut"],
    )  # fmt: skip
