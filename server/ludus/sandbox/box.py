"""The server's side of a sandbox that has our own program inside; `ludus.sandbox.inside` is the other side."""

from __future__ import annotations

import asyncio
import json
import marshal
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from ludus.sandbox import rescue
from ludus.sandbox.base import Command, SandboxBase
from ludus.sandbox.cgroups import Group
from ludus.sandbox.errors import SandboxFailed, SandboxFileError
from ludus.sandbox.model import FileInfo, LimitName, RunResult, SandboxSettings, Snapshot
from ludus.sandbox.network import netns_listener
from ludus.sandbox.stale import OWNER

_INSIDE: Final = Path(__file__).with_name("inside")
_HEAD: Final = struct.Struct("!II")
_START_SECONDS: Final = 30.0
_OVERTIME_SECONDS: Final = 2.0
"""How long after a command's time limit the server ends the sandbox, if the program inside did not end the command."""
_CLEAN_UP_SECONDS: Final = 10.0
"""How long the program inside may take to end a command's processes if they have no namespace of their own."""
_END_SECONDS: Final = 60.0
"""How long the kernel may take to end killed processes."""
_FILE_SECONDS: Final = 60.0

_PACKAGE: Final = "ludus.sandbox.inside"
_MODULES: Final = ("messages", "confine", "command", "files", "runner")
"""The modules inside, each after those that it imports."""

_BOOT: Final = f"""
import marshal, os, sys
def take(size):
    data = b""
    while len(data) < size:
        part = os.read(control, size - len(data))
        if not part: os._exit(0)
        data += part
    return data
control = int(sys.argv[1])
sys.modules["{_PACKAGE}"] = type(sys)("{_PACKAGE}")
for name, code in marshal.loads(take(int.from_bytes(take(4), "big"))):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
sys.modules["{_PACKAGE}.runner"].main(control)
"""
"""The code that starts in a sandbox. It receives compiled modules, so that no sandbox has to find or compile them."""


@cache
def _program() -> bytes:
    """Return the modules inside, compiled without their docstrings, after their size."""
    parts = [
        (f"{_PACKAGE}.{name}", compile((_INSIDE / f"{name}.py").read_bytes(), f"<{name}>", "exec", optimize=2))
        for name in _MODULES
    ]
    data = marshal.dumps(parts)
    return len(data).to_bytes(4, "big") + data


PYTHON: Final = os.path.realpath(sys.executable)
"""The interpreter that runs the program inside: that of this server, without its virtual environment."""


def inside_argv(descriptor: int) -> list[str]:
    """Return the command line of the program inside: an isolated Python, without site-packages or our own packages."""
    return [PYTHON, "-I", "-S", "-B", "-c", _BOOT, str(descriptor), OWNER]


@dataclass(slots=True)
class Launch:
    """How to start a sandbox."""

    argv: list[str]
    config: dict[str, Any]
    """The configuration, sent to the program inside as its first request."""
    descriptors: tuple[int, ...]
    """Descriptors that the started process inherits; the server then closes its own copies."""
    info: int = -1
    """A descriptor that yields the id of the sandbox's first process; -1 if that is the started process itself."""
    group: Group | None = None
    handoff: socket.socket | None = None
    """The socket on which the program inside sends the listening socket of the egress proxy."""


class BoxProcess:
    """The processes of one sandbox, and the socket to the program inside."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = -1
        """The id of the sandbox's first process, if the sandbox has its own namespace."""
        self._outer = -1
        """A pidfd of the started process."""
        self._first = -1
        """A pidfd of the sandbox's first process; in a namespace, every process ends with it."""
        self._control: socket.socket | None = None
        self._home = -1
        """A descriptor of the work directory, through which its files can be saved when its processes are gone."""
        self._forced = False
        self._said = -1
        """A descriptor that yields the standard error of the started process."""
        self._until_started = ExitStack()
        if launch.info >= 0:
            self._until_started.callback(os.close, launch.info)
        if launch.handoff is not None:
            self._until_started.enter_context(launch.handoff)
        self._listener: socket.socket | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self, control: socket.socket, theirs: socket.socket) -> None:
        """Start the sandbox and wait until it is confined; a canceled call leaves nothing behind.

        The process is started by the current thread, which must be the event loop's: a sandbox ends with the thread
        that started it.

        Raises:
            SandboxFailed: it could not be started; the message quotes its standard error.
        """
        launch = self._launch
        self._control = control
        try:
            try:
                process = self._process = self._spawn(theirs.fileno())
            finally:
                theirs.close()
                for descriptor in launch.descriptors:
                    os.close(descriptor)
            self._outer = os.pidfd_open(process.pid)
            self._reader, self._writer = await asyncio.open_unix_connection(sock=control)
            async with asyncio.timeout(_START_SECONDS):
                await self._enter_group(process.pid)
                self._writer.write(_program())
                reply, _ = await self.exchange(launch.config, b"")
            if "error" in reply:
                raise SandboxFailed(f"confining a sandbox failed: {reply['error']}")
            if launch.handoff is not None:
                self._listener = netns_listener.receive(launch.handoff)
            if self._pid > 0:
                self._home = rescue.open_home(self._pid, launch.config["home"])
            self._until_started.close()
        except BaseException as error:
            said = self._give_up(control)
            try:
                await self.end()
            finally:
                self.release()
            if isinstance(error, OSError | EOFError | ValueError):
                why = said or error or type(error).__name__
                raise SandboxFailed(f"starting a sandbox failed: {why}") from None
            raise

    def listener(self) -> socket.socket | None:
        """Hand over the listening socket of the egress proxy, which the caller must close; None if there is none."""
        listener, self._listener = self._listener, None
        return listener

    async def _enter_group(self, pid: int) -> None:
        launch = self._launch
        if launch.info >= 0:
            self._pid = pid = await _child_pid(launch.info)
        self._first = os.pidfd_open(pid)
        if launch.group is not None:
            launch.group.add(pid)

    def _spawn(self, control: int) -> subprocess.Popen[bytes]:
        launch = self._launch
        if launch.group is not None:
            launch.group.make(launch.config["disk"]["bytes"] + launch.config["memory"], launch.config["tasks"])
            launch.config["meter"] = launch.group.open_meter()
            launch.descriptors = (*launch.descriptors, launch.config["meter"])
        with ExitStack() as theirs:
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            theirs.callback(os.close, nowhere)
            self._said, said = os.pipe()
            self._until_started.callback(os.close, self._said)
            theirs.callback(os.close, said)
            return subprocess.Popen(
                launch.argv, stdin=nowhere, stdout=nowhere, stderr=said,
                pass_fds=(control, *launch.descriptors), env={}, cwd="/", start_new_session=True,
            )  # fmt: skip

    def _give_up(self, control: socket.socket) -> str:
        """Kill what was started, and return what it wrote to standard error."""
        if self._writer is None:
            control.close()
        if self._process is None:
            return ""
        if self._first < 0:
            self._first = _child_of(self._process)
        self._process.kill()
        os.set_blocking(self._said, False)
        try:
            return os.read(self._said, 2000).decode("utf-8", "replace").strip()
        except BlockingIOError:
            return ""

    @property
    def alive(self) -> bool:
        """Whether the sandbox runs and has not been ended."""
        return self._ending is None and self._process is not None and self._process.poll() is None

    @property
    def isolated(self) -> bool:
        """Whether the program inside is protected from commands by its own namespaces."""
        return bool(self._launch.config["alone"])

    async def exchange(
        self, asked: dict[str, Any], blob: bytes, on_begin: Callable[[], None] | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and return the header and the bytes of its reply.

        Args:
            asked: the request.
            blob: the bytes that belong to it.
            on_begin: called when the requested command has started.

        Raises:
            EOFError: the sandbox has ended.
        """
        if self._reader is None or self._writer is None or self._ending is not None:
            raise EOFError("it has been closed")
        self._post(asked, blob)
        pieces = []
        try:
            while True:
                json_size, blob_size = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
                reply = json.loads(await self._reader.readexactly(json_size))
                pieces.append(await self._reader.readexactly(blob_size))
                if "more" not in reply:
                    return reply, b"".join(pieces)
                if on_begin is not None and "began" in reply:
                    on_begin()
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            raise EOFError("it ended unexpectedly") from None

    def cancel(self) -> None:
        """End the running command; its reply arrives as soon as it has ended."""
        if self._ending is None:
            self._post({"op": "cancel"}, b"")

    def _post(self, asked: dict[str, Any], blob: bytes) -> None:
        assert self._writer is not None
        header = marshal.dumps(asked)
        self._writer.write(_HEAD.pack(len(header), len(blob)) + header)
        if blob:
            self._writer.write(blob)

    def broken(self) -> tuple[int, int]:
        """Return how often the control group reached its limits on memory and on processes; zeros without a group."""
        group = self._launch.group
        return (0, 0) if group is None else group.broken()

    async def end(self, *, force: bool = False) -> None:
        """End every process of the sandbox and return when none is left; later calls wait for the first one.

        The processes are killed immediately, so that a canceled caller or an ending event loop leaves none behind.

        Args:
            force: without a namespace, do not rely on the program inside to end the other processes.
        """
        if self._ending is None or self._ending.cancelled():
            self._forced = force
            self.kill()
            self._ending = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._ending)

    def kill(self) -> None:
        """Start ending all processes that are known so far; `end` waits for them."""
        if self._process is None:
            return
        if self._first >= 0 and self.isolated:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        elif self._first >= 0 and self._control is not None:
            with suppress(OSError):  # the program inside ends the others, then itself, when its socket is closed
                self._control.shutdown(socket.SHUT_RDWR)
        else:
            self._process.kill()

    async def save_files(self, disk: int) -> Snapshot | None:
        """Copy the files of a sandbox whose processes have ended; None if they cannot or need not be copied."""
        folder, self._home = self._home, -1
        return None if folder < 0 else await asyncio.to_thread(rescue.save_files, folder, disk)

    def release(self) -> None:
        """Close the work directory's descriptor."""
        folder, self._home = self._home, -1
        if folder >= 0:
            os.close(folder)

    async def _end(self) -> None:
        try:
            if self._writer is not None:
                self._writer.transport.abort()
            if self._process is not None:
                await self._end_processes(self._process)
        finally:
            self._until_started.close()
            outer, first, self._outer, self._first = self._outer, self._first, -1, -1
            for descriptor in (outer, first):
                if descriptor >= 0:
                    os.close(descriptor)
            if self._listener is not None:
                self._listener.close()
            if self._launch.group is not None:
                await self._launch.group.remove()

    async def _end_processes(self, process: subprocess.Popen[bytes]) -> None:
        if self._first >= 0 and self.isolated:
            await _ended(self._first, _END_SECONDS)
        elif self._first >= 0 and (self._forced or not await _ended(self._first, _CLEAN_UP_SECONDS)):
            first = process.pid if process.returncode is None else None
            await asyncio.to_thread(rescue.end_tree, first, self._launch.config["home"])
        if process.returncode is None and self._outer >= 0 and not await _ended(self._outer, _CLEAN_UP_SECONDS):
            process.kill()
            await _ended(self._outer, _END_SECONDS)
        process.wait()


def _child_of(process: subprocess.Popen[bytes]) -> int:
    """Return a pidfd of bubblewrap's child; -1 if there is none.

    If bubblewrap is killed before it releases its child, the child would outlive it. Bubblewrap is stopped first, so
    that it cannot start a child during the check.
    """
    if process.returncode is not None:
        return -1
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    try:
        below = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        return os.pidfd_open(int(below[0])) if below else -1
    except OSError:
        return -1


async def _child_pid(info: int) -> int:
    """Return the id of the sandbox's first process, from bubblewrap's report, which arrives in pieces."""
    text = b""
    while True:
        await _readable(info)
        part = os.read(info, 4096)
        if not part:
            return int(json.loads(text)["child-pid"])
        text += part


async def _ended(pidfd: int, seconds: float) -> bool:
    """Wait until a process has ended, at most `seconds`; return whether it has."""
    try:
        async with asyncio.timeout(seconds):
            await _readable(pidfd)
    except TimeoutError:
        return False
    return True


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if done.done() else done.set_result(None))
    try:
        await done
    finally:
        loop.remove_reader(descriptor)


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
        clock, begun_at = asyncio.timeout(_START_SECONDS), None

        def begin() -> None:
            nonlocal begun_at
            begun_at = loop.time()
            clock.reschedule(begun_at + command.limits.seconds + _OVERTIME_SECONDS)

        limit: LimitName | None
        asked = {
            "op": "run", "argv": command.argv, "cwd": command.cwd, "env": command.env,
            "limits": command.limits.model_dump(),
        }  # fmt: skip
        try:
            async with clock:
                reply, output = await process.exchange(asked, command.stdin, begin)
            return _result(reply, output, before, process.broken())
        except TimeoutError:
            limit, why = "seconds", "it does not answer"
        except EOFError as error:
            limit, why = "memory" if process.broken()[0] > before[0] else None, str(error)
        # In an isolated sandbox, a command can affect the program inside only by using up the memory. Without
        # isolation, any command can stop or kill it.
        caused = limit == "memory" or not process.isolated or (limit == "seconds" and begun_at is not None)
        if self._closing is not None or not caused:
            await self.aclose()
            raise SandboxFailed(f"the sandbox is gone: {why}")
        await process.end(force=True)
        self._lost = True
        took = loop.time() - (asked_at if begun_at is None else begun_at)
        peak = command.limits.memory if limit == "memory" else 0
        return RunResult(b"", b"", None, signal.SIGKILL, limit, took, 0.0, peak, True, True, rebuilt=True)

    async def _ask(self, asked: dict[str, Any], blob: bytes = b"") -> tuple[dict[str, Any], bytes]:
        reply, data = await self._in_turn(lambda: self._exchange(asked, blob))
        _check(reply)
        return reply, data

    async def _exchange(self, asked: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
        await self._make_usable()
        try:
            async with asyncio.timeout(_FILE_SECONDS):
                return await self._process.exchange(asked, blob)
        except (TimeoutError, EOFError) as error:
            await self.aclose()  # part of a reply may still arrive and would be taken for the next one
            raise SandboxFailed(f"the sandbox is gone: {error or 'it does not answer'}") from None

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
        await self._process.end()
        self._process.release()


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
