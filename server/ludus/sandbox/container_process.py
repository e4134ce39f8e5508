"""The processes of a container that has our own program inside, as its first process.

How this works:

- The engine starts Python in the container with a few lines of code (`BOOT`). These write the number of this Python's
  bytecode to standard output, receive the program, compiled or as source, from standard input, and run it.
- The engine carries standard input and output over one connection, and puts 8 bytes in front of each part of the
  output. Two tasks (`_feed`, `_drain`) join it to a pair of sockets, so that for `BoxProcess` it is a socket as that of
  any other sandbox.
- Descriptors travel on a Unix socket that is mounted in the container (`SocketHandoff`). The program inside connects
  to it before anything untrusted runs; the server then removes it.
- The container ends with its first process, and that one ends when its standard input closes: also when the server is
  killed.
- `Unfit` is raised if the image cannot run the program, for example without Python. Such an image gets a
  `ContainerBox`, which works with a shell alone.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import docker.errors
import requests.exceptions

from ludus.sandbox.box_process import MODULES, PACKAGE, BoxProcess, Launch, program, program_source
from ludus.sandbox.cgroups import Group
from ludus.sandbox.container_background import OLDEST_PYTHON
from ludus.sandbox.core import rescue
from ludus.sandbox.core.errors import SandboxFailed
from ludus.sandbox.engine_calls import close_stream, read_buffered, remove_container, saw_memory_run_out
from ludus.sandbox.network import netns_listener
from ludus.sandbox.network.netns_listener import SocketHandoff
from ludus.sandbox.process_watch import is_first_process

log = logging.getLogger("ludus.sandbox")

_MAGIC: Final = importlib.util.MAGIC_NUMBER
_START_SECONDS: Final = 60.0
"""How long a container may take to start; the engine of an overloaded machine has taken more than twenty seconds."""
_CHUNK: Final = 1 << 18
_ERROR_BYTES: Final = 4000

BOOT: Final = f"""
import sys
if sys.version_info < ({OLDEST_PYTHON.replace(".", ", ")}): sys.exit("it is older than {OLDEST_PYTHON}")
import marshal, os
from importlib._bootstrap_external import MAGIC_NUMBER
def take(size):
    data = b""
    while len(data) < size:
        part = os.read(control, size - len(data))
        if not part: os._exit(0)
        data += part
    return data
control, out = os.dup(0), os.dup(1)
os.write(out, MAGIC_NUMBER)
sys.modules["{PACKAGE}"] = type(sys)("{PACKAGE}")
compiled = take(1) == b"c"
for name, code in marshal.loads(take(int.from_bytes(take(4), "big"))):
    module = sys.modules[name] = type(sys)(name)
    exec(code if compiled else compile(code, name, "exec", optimize=2), module.__dict__)
sys.modules["{PACKAGE}.messages"].OUT[control] = out
sys.modules["{PACKAGE}.runner"].main(control)
"""
"""The code that starts in a container."""
assert MODULES[0] == "messages"


class Unfit(Exception):
    """The image or the engine cannot run the program inside; the text says why."""


class ContainerProcess(BoxProcess):
    """The processes of one container.

    Args:
        api: the engine's client.
        create: creates the container and returns its id.
        handoff: the socket for descriptors, which is mounted in the container.
        launch: the configuration; its `passing` is replaced by the connection through `handoff`.
    """

    def __init__(self, api: Any, create: Callable[[], str], handoff: SocketHandoff, launch: Launch) -> None:
        super().__init__(launch)
        self._api = api
        self._create = create
        self._handoff = handoff
        self._id = ""
        self._stream: Any = None
        self._connection: socket.socket | None = None
        self._relays: list[asyncio.Task[None]] = []
        self._counters: Group | None = None
        """The container's control group, if it is visible here."""
        self._errors = bytearray()
        self._output_ended = False

    async def begin(self) -> None:
        """Create and start the container, and wait until the program inside is confined.

        Raises:
            Unfit: the image or the engine cannot run the program inside.
            SandboxFailed: it could not be started.
            docker.errors.APIError: the engine refused to create or start it.
        """
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)
        self._control = near
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._in_thread(self._begin)
                connection = self._connection
                assert connection is not None
                await self._boot(connection)
                self._relays = [
                    asyncio.create_task(self._feed(far, connection)),
                    asyncio.create_task(self._drain(connection, far)),
                ]
                reader, self._writer = await asyncio.open_unix_connection(sock=near)
                self._listening = asyncio.create_task(self._listen(reader))
                await self._configure()
        except BaseException as error:
            if self._writer is None:
                # From `open_unix_connection` on, the writer's transport owns this end and closes it.
                near.close()
            if not self._relays:
                # Once `_drain` runs, it closes this end.
                far.close()
            try:
                await self.end()
            finally:
                self.release()
            if isinstance(error, (OSError, EOFError, TimeoutError)):
                error_text = bytes(self._errors).decode("utf-8", "replace").strip()
                reason = error_text or error or type(error).__name__
                raise SandboxFailed(f"starting a container failed: {reason}") from None
            raise

    async def _configure(self) -> None:
        """Send the configuration, receive the connection for descriptors, and wait until the program is confined.

        Raises:
            Unfit: the program inside does not reach the socket for descriptors.
        """
        launch = self._launch
        config = {**launch.config, "prepared": True, "passing": -1, "socket": SocketHandoff.PATH_INSIDE}
        reply, _ = await self.exchange(config, b"")
        if "unfit" in reply:
            raise Unfit(f"it cannot connect to a socket of the server ({reply['unfit']})")
        if "error" in reply:
            raise SandboxFailed(f"confining a sandbox failed: {reply['error']}")
        # Nothing untrusted runs yet, so the peer that is accepted here can only be the program inside.
        launch.passing.close()
        launch.passing = await self._handoff.accept()
        if launch.has_listener:
            launch.passing.setblocking(True)
            launch.passing.settimeout(_START_SECONDS)
            self._listener = netns_listener.receive(launch.passing)
        launch.passing.setblocking(False)
        if self._counters is not None:
            meter = self._counters.open_meter()
            try:
                self.pass_descriptors(meter)
            finally:
                os.close(meter)
            await self.exchange({"op": "meter"}, b"")

    async def _in_thread(self, work: Callable[[], None]) -> None:
        """Run work in a thread; a canceled caller still waits for it, so that what it created can be removed."""
        task = asyncio.create_task(asyncio.to_thread(work))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait((task,), timeout=_START_SECONDS)
            raise

    def _begin(self) -> None:
        """Create and start the container; runs in a thread that continues when its caller is canceled."""
        self._id = self._create()
        try:
            self._start_container()
        finally:
            if self._ending is not None:  # the caller gave up, and `_end` has not seen all of it
                remove_container(self._api, self._id)
                if self._stream is not None:
                    close_stream(self._stream)

    def _start_container(self) -> None:
        # Attach before the start: the container ends as soon as its input is closed.
        parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        try:
            self._stream = self._api.attach_socket(self._id, params=parameters)
            connection: socket.socket = getattr(self._stream, "_sock", self._stream)
            connection.setblocking(False)
            self._connection = connection
            self._api.start(self._id)
        except docker.errors.APIError as error:
            if _lacks_python(error):
                raise Unfit("it has no `python3`") from None
            raise
        process = int(self._api.inspect_container(self._id)["State"]["Pid"])
        if process <= 0 or not is_first_process(process, self._id):
            return  # it has ended already, or the engine runs on another machine
        self._pid = process
        with suppress(ProcessLookupError):
            self._first = os.pidfd_open(process)
            self._counters = Group.of(process, self._id)
            self._home = rescue.open_home(process, self._launch.config["home"])
            if self._counters is not None and self._launch.config["tcp"]:
                self._counters.bound_tcp(self._launch.config["memory"])

    async def _boot(self, connection: socket.socket) -> None:
        """Send the program, compiled if the container has the Python of this server.

        Raises:
            Unfit: there is no Python in the container, or it is too old.
        """
        # Bytes that the SDK read together with the head of its HTTP response no longer come from the socket.
        buffered = bytearray(read_buffered(self._stream))
        parts = _Parts(self._errors)
        loop = asyncio.get_running_loop()
        magic = parts.take(bytes(buffered))
        while len(magic) < len(_MAGIC):
            data = await loop.sock_recv(connection, _CHUNK)
            if not data:
                raise self._unfit()
            magic += parts.take(data)
        # `_drain` continues with this parser, which may hold the beginning of the next part.
        self._parts = parts
        body = b"c" + program() if magic == _MAGIC else b"s" + program_source()
        await loop.sock_sendall(connection, body)

    def _unfit(self) -> Unfit | SandboxFailed:
        """Return why the first process has ended before it wrote to standard output."""
        error_text = bytes(self._errors).decode("utf-8", "replace").strip()[-200:]
        if error_text:  # by the loader, the interpreter, or the first lines of `BOOT`
            return Unfit(f"its `python3` does not start: {error_text}")
        return SandboxFailed("starting a container failed: it ended at once")

    async def _feed(self, source: socket.socket, target: socket.socket) -> None:
        """Send what the server writes to the container's standard input."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while data := await loop.sock_recv(source, _CHUNK):
                await loop.sock_sendall(target, data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    async def _drain(self, source: socket.socket, target: socket.socket) -> None:
        """Pass on what the container writes to its standard output."""
        loop = asyncio.get_running_loop()
        try:
            with suppress(OSError):
                while data := await loop.sock_recv(source, _CHUNK):
                    if output := self._parts.take(data):
                        await loop.sock_sendall(target, output)
        finally:
            # Before the shutdown, which ends `_listen`: the calls that this wakes must not find the sandbox alive.
            self._output_ended = True
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
            target.close()

    @property
    def user(self) -> int:
        """See `BoxProcess.user`; -1, since the ids of a container may have another meaning on this machine."""
        return -1

    @property
    def alive(self) -> bool:
        """See `BoxProcess.alive`."""
        return self._ending is None and bool(self._id) and not self._output_ended

    def broken(self) -> tuple[int, int]:
        """See `BoxProcess.broken`."""
        return (0, 0) if self._counters is None else self._counters.broken()

    async def ran_out_of_memory(self, before: int) -> bool:
        """See `BoxProcess.ran_out_of_memory`; the engine knows it when the control group is gone with the container."""
        if await super().ran_out_of_memory(before):
            return True
        if self._counters is not None and self._counters.exists():
            return False
        try:
            return await asyncio.to_thread(saw_memory_run_out, self._api, self._id)
        except (docker.errors.DockerException, requests.exceptions.RequestException):
            return False

    def kill(self) -> None:
        """See `BoxProcess.kill`."""
        if self._first >= 0:
            # Rootless: the process belongs to a user of which this server has no rights; it ends with its input.
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)

    async def _end(self) -> None:
        try:
            if self._writer is not None:
                self._writer.transport.abort()
            if self._id:
                await asyncio.to_thread(remove_container, self._api, self._id)
            for task in (*self._relays, *([] if self._listening is None else [self._listening])):
                task.cancel()
            await asyncio.gather(*self._relays, *([] if self._listening is None else [self._listening]),
                                 return_exceptions=True)  # fmt: skip
        finally:
            if self._stream is not None:
                close_stream(self._stream)
            self._launch.passing.close()
            self._handoff.close()
            self._until_started.close()
            first_fd, self._first = self._first, -1
            if first_fd >= 0:
                os.close(first_fd)
            if self._listener is not None:
                self._listener.close()


class _Parts:
    """Takes the engine's stream apart: an 8-byte header before each part names its stream and size.

    Args:
        errors: where the beginning of standard error is kept.
    """

    def __init__(self, errors: bytearray) -> None:
        self._errors = errors
        self._buffer = bytearray()

    def take(self, data: bytes) -> bytes:
        """Return what `data` completes of standard output."""
        self._buffer += data
        output = bytearray()
        while len(self._buffer) >= 8:
            stream, size = struct.unpack(">BxxxI", bytes(self._buffer[:8]))
            if len(self._buffer) < 8 + size:
                break
            part = self._buffer[8 : 8 + size]
            if stream == 1:
                output += part
            else:
                self._errors += part[: max(0, _ERROR_BYTES - len(self._errors))]
            del self._buffer[: 8 + size]
        return bytes(output)


def _lacks_python(error: docker.errors.APIError) -> bool:
    explanation = str(error.explanation or error)
    causes = ("no such file", "not found", "executable file")
    return "python3" in explanation and any(cause in explanation for cause in causes)
