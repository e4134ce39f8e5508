"""The processes of a sandbox that has our own program inside, and the messages to and from that program.

How this works:

- `BoxProcess.start` starts the sandbox, sends it the program (`_program`) and the configuration, and waits until it is
  confined. From then on `_listen` reads every message of the program inside.
- Requests have numbers, so several can be in progress: `exchange` sends one and waits for the parts of its reply. A
  message with a `job` belongs to a background process and is handed to the callable that `attach` registered.
- Descriptors travel on a socket of their own, one byte for each message: the listening socket of the egress proxy and
  connections to ports come out, the ends of terminals go in.
- When the socket closes, everything in the sandbox ends; `end` waits for that.
"""

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
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from ludus.sandbox.cgroups import Group
from ludus.sandbox.core import rescue
from ludus.sandbox.core.errors import SandboxFailed
from ludus.sandbox.core.model import Snapshot
from ludus.sandbox.core.stale import OWNER
from ludus.sandbox.network import netns_listener

_INSIDE: Final = Path(__file__).with_name("inside")
_HEAD: Final = struct.Struct("!II")
_MARSHAL_VERSION: Final = 4
"""The format that every supported Python reads."""
START_SECONDS: Final = 30.0
_CLEAN_UP_SECONDS: Final = 10.0
"""How long the program inside may take to end a command's processes if they have no namespace of their own."""
_END_SECONDS: Final = 60.0
"""How long the kernel may take to end killed processes."""

PACKAGE: Final = "ludus.sandbox.inside"
MODULES: Final = ("messages", "confine", "processes", "start", "command", "loop", "dialing", "files", "runner")
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
sys.modules["{PACKAGE}"] = type(sys)("{PACKAGE}")
for name, code in marshal.loads(take(int.from_bytes(take(4), "big"))):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
sys.modules["{PACKAGE}.runner"].main(control)
"""
"""The code that starts in a sandbox. It receives compiled modules, so that no sandbox has to find or compile them."""


@cache
def program() -> bytes:
    """Return the modules inside, compiled without their docstrings, after their size."""
    return _sized(
        [
            (f"{PACKAGE}.{name}", compile((_INSIDE / f"{name}.py").read_bytes(), f"<{name}>", "exec", optimize=2))
            for name in MODULES
        ]
    )


@cache
def program_source() -> bytes:
    """Return the modules inside as source, for another version of Python, after their size."""
    return _sized([(f"{PACKAGE}.{name}", (_INSIDE / f"{name}.py").read_bytes()) for name in MODULES])


def _sized(parts: list[tuple[str, Any]]) -> bytes:
    data = marshal.dumps(parts, _MARSHAL_VERSION)
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
    passing: socket.socket
    """The socket on which descriptors are sent to and from the program inside."""
    has_listener: bool = False
    """Whether the program inside sends the listening socket of the egress proxy."""
    info: int = -1
    """A descriptor that yields the id of the sandbox's first process; -1 if that is the started process itself."""
    group: Group | None = None


@dataclass(slots=True)
class _Exchange:
    """A request whose reply has not arrived completely."""

    reply: asyncio.Future[tuple[dict[str, Any], bytes]]
    on_begin: Callable[[], None] | None
    pieces: list[bytes] = field(default_factory=list)


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
        self._stderr = -1
        """A descriptor that yields the standard error of the started process."""
        self._until_started = ExitStack()
        if launch.info >= 0:
            self._until_started.callback(os.close, launch.info)
        self._listener: socket.socket | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._requests = 0
        self._pending: dict[int, _Exchange] = {}
        self._jobs: dict[int, Callable[[dict[str, Any], bytes], None]] = {}
        self.on_loss: Callable[[], None] | None = None
        """Called once when the program inside can no longer be heard; not after `end`."""
        self._ending: asyncio.Task[None] | None = None

    async def start(self, control: socket.socket, far_end: socket.socket) -> None:
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
                process = self._process = self._spawn(far_end.fileno())
            finally:
                # While this process held a copy, the control socket would never report that the sandbox has ended.
                far_end.close()
                for descriptor in launch.descriptors:
                    os.close(descriptor)
            self._outer = os.pidfd_open(process.pid)
            reader, self._writer = await asyncio.open_unix_connection(sock=control)
            self._listening = asyncio.create_task(self._listen(reader))
            async with asyncio.timeout(START_SECONDS):
                # Before the program is sent: memory is charged to the group that a process is in when it allocates.
                await self._enter_group(process.pid)
                self._writer.write(program())
                reply, _ = await self.exchange(launch.config, b"")
            if "error" in reply:
                raise SandboxFailed(f"confining a sandbox failed: {reply['error']}")
            if launch.has_listener:
                self._listener = netns_listener.receive(launch.passing)
            if self._pid > 0:
                self._home = rescue.open_home(self._pid, launch.config["home"])
            self._until_started.close()
        except BaseException as error:
            # Before `end`, which closes the pipe with the standard error.
            error_text = self._give_up(control)
            try:
                await self.end()
            finally:
                self.release()
            if isinstance(error, OSError | EOFError | ValueError):
                reason = error_text or error or type(error).__name__
                raise SandboxFailed(f"starting a sandbox failed: {reason}") from None
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
        with ExitStack() as child_ends:
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            child_ends.callback(os.close, nowhere)
            self._stderr, stderr_end = os.pipe()
            self._until_started.callback(os.close, self._stderr)
            child_ends.callback(os.close, stderr_end)
            # An empty environment: the server's may hold secrets, and /proc shows a process's environment inside.
            return subprocess.Popen(
                launch.argv, stdin=nowhere, stdout=nowhere, stderr=stderr_end,
                pass_fds=(control, *launch.descriptors), env={}, cwd="/", start_new_session=True,
            )  # fmt: skip

    def _give_up(self, control: socket.socket) -> str:
        """Kill what was started, and return what it wrote to standard error."""
        if self._writer is None:
            control.close()
        if self._process is None:
            return ""
        if self._first < 0:
            # Before the kill: bubblewrap's child could not be found through a parent that is gone.
            self._first = _child_of(self._process)
        self._process.kill()
        # A descendant that is still dying may hold the pipe open, and reading to its end would wait for that.
        os.set_blocking(self._stderr, False)
        try:
            return os.read(self._stderr, 2000).decode("utf-8", "replace").strip()
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

    @property
    def user(self) -> int:
        """The user id of the commands."""
        return int(self._launch.config["user"])

    @property
    def has_terminals(self) -> bool:
        """Whether the sandbox can create terminals itself."""
        return bool(self._launch.config["terminals"])

    async def exchange(
        self, request: dict[str, Any], blob: bytes, on_begin: Callable[[], None] | None = None,
        on_event: Callable[[dict[str, Any], bytes], None] | None = None,
    ) -> tuple[dict[str, Any], bytes]:  # fmt: skip
        """Send a request and return the header and the bytes of its reply.

        Args:
            request: the request. Its `id`, if it has one, comes from `number`.
            blob: the bytes that belong to it.
            on_begin: called when the requested command has started.
            on_event: called for each event of the background process that the request starts, until `detach`.

        Raises:
            EOFError: the sandbox has ended.
        """
        if not self._is_listening():
            raise EOFError("it has been closed")
        number = request["id"] = request.get("id") or self.number()
        waiting = self._pending[number] = _Exchange(asyncio.get_running_loop().create_future(), on_begin)
        if on_event is not None:
            self._jobs[number] = on_event
        try:
            self._post(request, blob)
            return await waiting.reply
        finally:
            # For a canceled caller too: `_dispatch` then drops the reply that still comes.
            self._pending.pop(number, None)

    def number(self) -> int:
        """Return the number of a new request."""
        self._requests += 1
        return self._requests

    def _is_listening(self) -> bool:
        listening = self._listening
        return self._writer is not None and self._ending is None and listening is not None and not listening.done()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Read the messages of the program inside until it ends."""
        try:
            while True:
                json_size, blob_size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
                message = json.loads(await reader.readexactly(json_size))
                self._dispatch(message, await reader.readexactly(blob_size))
        except (asyncio.IncompleteReadError, ConnectionError, ValueError, KeyError, TypeError):
            pass  # it has ended, or, without isolation, a command has tampered with it
        finally:
            for waiting in self._pending.values():
                if not waiting.reply.done():
                    waiting.reply.set_exception(EOFError("it ended unexpectedly"))
        # Not in `finally`: a listener that `_end` cancels is no loss.
        if self._ending is None and self.on_loss is not None:
            self.on_loss()

    def _dispatch(self, message: dict[str, Any], blob: bytes) -> None:
        if "job" in message:
            job = self._jobs.get(message["job"])
            if job is not None:
                job(message, blob)
            return
        waiting = self._pending.get(message["id"])
        if waiting is None or waiting.reply.done():
            return
        waiting.pieces.append(blob)
        if "more" not in message:
            waiting.reply.set_result((message, b"".join(waiting.pieces)))
        elif waiting.on_begin is not None and "began" in message:
            waiting.on_begin()

    def tend(self, job: int, blob: bytes = b"", **fields: Any) -> None:
        """Send a request about a background process, which has no reply; do nothing if the sandbox has ended."""
        if self._is_listening():
            self._post({"job": job, **fields}, blob)

    def detach(self, job: int) -> None:
        """Ignore further events of a background process."""
        self._jobs.pop(job, None)

    def end_streams(self) -> None:
        """End the output of background processes of which not all has arrived; the sandbox must have ended."""
        for on_event in tuple(self._jobs.values()):
            for stream in (0, 1):
                on_event({"eof": True, "stream": stream}, b"")

    def pass_descriptors(self, *descriptors: int) -> None:
        """Send descriptors to the program inside, for the request that follows.

        Raises:
            EOFError: the sandbox has ended.
        """
        try:
            socket.send_fds(self._launch.passing, [b"x"], list(descriptors))
        except OSError:
            raise EOFError("it has been closed") from None

    def receive_socket(self) -> socket.socket:
        """Receive the socket that the program inside sent before its last reply.

        Raises:
            OSError: it sent none.
        """
        return netns_listener.receive(self._launch.passing)

    def cancel(self) -> None:
        """End the running command; its reply arrives as soon as it has ended."""
        if self._is_listening():
            self._post({"op": "cancel"}, b"")

    def _post(self, request: dict[str, Any], blob: bytes) -> None:
        assert self._writer is not None
        header = marshal.dumps(request, _MARSHAL_VERSION)
        self._writer.write(_HEAD.pack(len(header), len(blob)) + header)
        if blob:
            self._writer.write(blob)

    def broken(self) -> tuple[int, int]:
        """Return how often the control group reached its limits on memory and on processes; zeros without a group."""
        group = self._launch.group
        return (0, 0) if group is None else group.broken()

    async def ran_out_of_memory(self, before: int) -> bool:
        """Return whether the limit on memory has ended the sandbox.

        Args:
            before: how often the limit had ended a process when that began which may have caused the loss.
        """
        return self.broken()[0] > before

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
            if self._listening is not None:
                self._listening.cancel()
                await asyncio.gather(self._listening, return_exceptions=True)
        finally:
            self._launch.passing.close()
            self._until_started.close()
            # Cleared before they are closed: a late `kill` would signal whatever the reused descriptor refers to.
            outer, first_fd, self._outer, self._first = self._outer, self._first, -1, -1
            for descriptor in (outer, first_fd):
                if descriptor >= 0:
                    os.close(descriptor)
            if self._listener is not None:
                self._listener.close()
            if self._launch.group is not None:
                # Last: the kernel removes a control group only when no process is left in it.
                await self._launch.group.remove()

    async def _end_processes(self, process: subprocess.Popen[bytes]) -> None:
        if self._first >= 0 and self.isolated:
            await _ended(self._first, _END_SECONDS)
        elif self._first >= 0 and (self._forced or not await _ended(self._first, _CLEAN_UP_SECONDS)):
            # Once `process` was waited for, its id may belong to an unrelated process.
            root = process.pid if process.returncode is None else None
            await asyncio.to_thread(rescue.end_tree, root, f"={self._launch.config['home']}\0")
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
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
