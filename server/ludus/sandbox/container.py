"""One container of a Docker engine as a `Sandbox`.

How this works:

- The container's first process reads its standard input, which the server holds open. The container ends when that
  input closes, so a server that is killed leaves no container running. Each line that the server writes there makes
  the first process reap the zombies it has inherited.
- Starting a process in a container costs the engine some 50 ms. So a shell is started ahead of each command
  (`_open_shell`). It ends what is left of the last command, reports that it is ready, and waits for one line.
- `_run` builds that line: it changes the directory, sets the shell's limits, runs the command with `env -i`, and then
  ends every other process of the sandbox's user. The command's own standard input follows the line (`_feed`).
- `_attend` reads the output (`_read`) until the engine closes the stream. Meanwhile it checks the time, the amount of
  output, and every 0.1 s the figures of the container's control group, if they are visible on this machine.
- If a limit is exceeded, or the caller is canceled, `_end_all` starts another shell that kills every process except
  the first. If that does not work, `_lose` removes the container.
- A shell reports a signal only as exit code 128 + n, which a command can also choose itself. So such a code counts as
  a limit only if the measured CPU time, or a mark that the shell wrote to standard error, confirms it.
- A container that was removed is started again before its next use (`_rebuild`). Its files are in memory. If the server
  could open the work directory from outside, that descriptor keeps the files, and they are copied.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import docker.errors
import requests.exceptions

from ludus.sandbox import shell_scripts as scripts
from ludus.sandbox.base import Command, SandboxBase
from ludus.sandbox.cgroups import Group, Usage
from ludus.sandbox.container_background import LOOK_SECONDS, OLDEST_PYTHON, WATCH_SECONDS, ContainerBackground, Shell
from ludus.sandbox.container_results import LARGE_FILE, Output, broken_limit, limit_from_counters, result_of
from ludus.sandbox.core import rescue
from ludus.sandbox.core.endings import LimitName
from ludus.sandbox.core.errors import SandboxFailed, SandboxFileError, SandboxUnsupported
from ludus.sandbox.core.model import Limits, RunResult, SandboxSettings
from ludus.sandbox.engine_calls import close_stream, read_buffered, remove_container, saw_memory_run_out
from ludus.sandbox.network.netns_listener import listen_in_netns
from ludus.sandbox.process_watch import ProcessWatch, is_first_process

if TYPE_CHECKING:
    pass

T = TypeVar("T")

ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": scripts.HOME, "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
}  # fmt: skip
_READY: Final = b"\1\0\0\0\0\0\0\1\n"
_DISK_FULL: Final = b"\0ludus: disk full\0"
_CROWDED: Final = b"\0ludus: processes\0"
_END_SECONDS: Final = 5.0
_EXIT_LOOKS: Final = 400
_GRACE_SECONDS: Final = 20.0
_START_SECONDS: Final = 60.0
"""How long a shell may take to start; the engine of an overloaded machine has taken more than twenty seconds."""
_ERRORS: Final = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)


class ContainerBox(ContainerBackground):
    """A sandbox in a container, whose commands the engine starts.

    Args:
        api: the engine's client.
        user: the user id of the commands.
        restart: starts a container in place of one that is gone.
        watched: whether no control group limits the container.
        lacking: why the program inside, which background processes and ports need, cannot run in it.
        settings, another, on_close: see `SandboxBase`.
    """

    def __init__(
        self, api: Any, settings: SandboxSettings, user: int,
        another: Callable[[SandboxSettings], Awaitable[SandboxBase]], on_close: Callable[[SandboxBase], None],
        restart: Callable[[ContainerBox], Awaitable[None]], watched: bool, lacking: str,
    ) -> None:  # fmt: skip
        super().__init__(settings, ENVIRONMENT, another, on_close, watched, lacking)
        self._api = api
        self.user = user
        self._restart = restart
        self._id = ""
        self._input: Any = None
        self._group: Group | ProcessWatch | None = None
        """Its control group, if it is visible here: the engine needs a second for its own figures of the usage."""
        self._next: asyncio.Task[Shell] | None = None
        self._stopped = asyncio.Event()
        self._home = -1
        """A descriptor of the work directory, through which its files can be saved when the container is gone."""
        self._closed = asyncio.Event()
        """Set when it is closed. A thread of a canceled start that finds it set removes the container it created."""

    async def start(self, create: Callable[[], str]) -> None:
        """Start the container, its egress proxy if the settings allow a network, and a first shell.

        Raises:
            SandboxUnsupported: the listening socket of the egress proxy cannot be created.
        """
        await _to_thread(self._begin, create)
        if self.settings.network:
            listener = await _to_thread(self._open_listener)
            if self._egress is None:
                self._open_egress(listener)
            else:
                await self._egress.move(listener)
        self._next = asyncio.create_task(asyncio.to_thread(self._open_shell))
        await asyncio.shield(self._next)

    def _begin(self, create: Callable[[], str]) -> None:
        """Create and start the container; runs in a thread that continues when its caller is canceled."""
        self._id = create()
        try:
            # Attach before the start: the container ends as soon as its input is closed.
            self._input = self._api.attach_socket(self._id, params={"stdin": 1, "stream": 1})
            self._api.start(self._id)
            process = self._api.inspect_container(self._id)["State"]["Pid"]
            watch = partial(ProcessWatch, process, self.limits.memory)
            self._group = watch() if self.watched else Group.of(process, self._id)
            if self.settings.network and self._group is not None:
                self._group.bound_tcp(self.limits.memory)
            if is_first_process(process, self._id):
                self._home = rescue.open_home(process, scripts.HOME)
        finally:
            # The caller gave up while this thread ran: `_close` may have seen no container, so it must be removed here.
            if self._closed.is_set():
                remove_container(self._api, self._id)
                self._close_descriptors()

    def _open_listener(self) -> socket.socket:
        """Return a listening socket in the container's network.

        Raises:
            SandboxUnsupported: this server may not create one there.
        """
        process = self._api.inspect_container(self._id)["State"]["Pid"]
        if not is_first_process(process, self._id):
            raise SandboxUnsupported("an allowlist needs a container engine on this machine; this one runs elsewhere")
        try:
            return listen_in_netns(process)
        except PermissionError:
            raise SandboxUnsupported(
                f"the image {self.settings.image or self.settings.build!r} cannot open the listener that an allowlist "
                f"needs: install Python {OLDEST_PYTHON} or newer as `python3` in the image, run the server as root "
                "with the right to enter a container's network (CAP_SYS_ADMIN), or use bubblewrap"
            ) from None

    def _open_shell(self) -> Shell:
        """Start a shell and wait until it is ready for its line."""
        shell = self._execute(scripts.WAIT)
        try:
            # Blocking with a timeout, since this is a thread; asyncio needs the socket non-blocking again afterwards.
            shell.socket.settimeout(_START_SECONDS)
            buffer = shell.early
            while len(buffer) < len(_READY) and (chunk := shell.socket.recv(len(_READY) - len(buffer))):
                buffer += chunk
            if buffer != _READY:
                raise OSError("no shell starts in the container: the image must have /bin/sh")
            shell.socket.setblocking(False)
        except OSError:
            shell.close()
            raise
        return shell

    def missing_programs(self) -> list[str]:
        """Return the programs that operations on this sandbox need and its image lacks."""
        script = f"for name in {' '.join(scripts.PROGRAMS)}; do command -v $name >/dev/null || echo $name; done"
        execution = self._api.exec_create(self._id, ["/bin/sh", "-c", script], user=f"{self.user}:{self.user}")
        return bytes(self._api.exec_start(execution["Id"])).decode("utf-8", "replace").split()

    def _execute(self, script: str) -> Shell:
        user = f"{self.user}:{self.user}"
        execution = self._api.exec_create(self._id, ["/bin/sh", "-c", script], stdin=True, user=user)
        stream = self._api.exec_start(execution["Id"], socket=True)
        raw = getattr(stream, "_sock", stream)
        raw.setblocking(False)
        return Shell(execution["Id"], stream, raw, read_buffered(stream))

    @property
    def alive(self) -> bool:
        """See `SandboxBase.alive`."""
        return self._closing is None

    async def take_shell(self) -> Shell:
        """Return the shell that waits, which the caller closes.

        Raises:
            SandboxFailed: there is none any more.
        """
        if self._closing is not None or self._next is None:
            raise SandboxFailed("the sandbox is gone: it was closed")
        try:
            shell = await self._next
            self._reap_zombies()
        except _ERRORS as error:
            await self.aclose()
            raise SandboxFailed(f"the sandbox is gone: {error or type(error).__name__}") from None
        self._next = None
        return shell

    def start_shell(self) -> None:
        """Start a shell that waits, unless the container is gone."""
        if not self._lost and self._closing is None:
            self._next = asyncio.create_task(asyncio.to_thread(self._open_shell))

    # ── running ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _stop(self) -> None:
        self._stopped.set()

    async def _run(self, command: Command) -> RunResult:
        if any("\0" in word for word in command.argv):
            return RunResult(b"", b"embedded null byte\n", 126, None, None, 0.0, 0.0, 0)
        # Not a fixed mark: a program that writes it would turn its own failure into an error of the caller.
        no_directory = f"\0ludus: no such directory {secrets.token_hex(8)}\0".encode()
        line = _line_of(command, no_directory, self.watched)
        result = await self._line(line, command.stdin, command.limits)
        if result.exit_code == 125 and result.stderr == no_directory:
            raise SandboxFileError(f"there is no directory {command.cwd!r} below the work directory")
        if result.stderr.endswith(_CROWDED):
            return replace(result, stderr=result.stderr.removesuffix(_CROWDED), limit=result.limit or "processes")
        if result.stderr.endswith(_DISK_FULL):
            limit = result.limit or "disk"
            return replace(result, stderr=result.stderr.removesuffix(_DISK_FULL), limit=limit)
        return result

    async def _line(self, line: str, stdin: bytes, allowed: Limits) -> RunResult:
        """Run a line in the shell that waits; called in turn.

        Raises:
            SandboxUnsupported: a background process runs.
            SandboxFailed: the container is gone for another reason than memory, or the engine does not answer.
        """
        self._check_alone()
        # A `_stop` meant for an earlier command, whose caller was canceled, would otherwise end this one.
        self._stopped.clear()
        began = time.monotonic()
        try:
            return await self._carry_out(line, stdin, allowed)
        except (*_ERRORS, EOFError) as error:
            failure = error
        if self._closing is None and await asyncio.to_thread(self._ran_out_of_memory):
            await self._lose()
            took = time.monotonic() - began
            return RunResult(
                b"", b"", None, signal.SIGKILL, "memory", took, 0.0, allowed.memory, True, True, rebuilt=True
            )
        await self.aclose()
        raise SandboxFailed(f"the sandbox is gone: {failure or type(failure).__name__}")

    async def _carry_out(self, line: str, stdin: bytes, allowed: Limits) -> RunResult:
        if not self.alive or self._next is None:
            raise EOFError("it has been closed")
        shell = await self._next
        self._next = None
        output = Output(allowed.output)
        try:
            self._reap_zombies()  # processes of the last command, which the new shell has killed
            # The counters are those of the container over all commands: only their increase belongs to this one.
            before, counters_before = self.usage(), self.limit_counters()
            began = time.monotonic()
            limit, usage = await self._attend(shell, line, stdin, allowed, output, before)
            took = time.monotonic() - began
            if self._closing is not None:
                raise EOFError("it has been closed")
            code = None if self._lost else await asyncio.to_thread(self._exit_code, shell.id)
            # A reset alone proves nothing: the engine also resets behind a command that has not read all of its input.
            if shell.reset and code is None and not self._lost:
                raise EOFError("the engine reset the connection to a command that still runs")
            # Read before `_end_all`, whose own shell would add to the counters when it meets a limit.
            counters_after = self.limit_counters()
        finally:
            shell.close()
        if code is not None and code > 128 and limit is None:
            await self._end_all()  # the shell itself may have been killed before it could end the other processes
        after = usage if self._lost else self.usage()
        if limit is None and code != 0:
            limit = limit_from_counters(counters_before, counters_after, allowed)
        if not self._lost:
            self._reap_zombies()
            self.start_shell()
        return replace(result_of(output, code, limit, took, before, usage, after, allowed), rebuilt=self._lost)

    async def _attend(
        self, shell: Shell, line: str, stdin: bytes, allowed: Limits, output: Output, before: Usage
    ) -> tuple[LimitName | None, Usage]:
        """Write the command's input, read its output and check its limits until it ends or exceeds one.

        Returns:
            The limit that it exceeded, if any, and its last observed usage with the peak of its memory.
        """
        deadline = time.monotonic() + allowed.seconds
        look = WATCH_SECONDS if self.watched else LOOK_SECONDS
        # Fed while the output is read: a command that writes before it has read all of its input would block both.
        feeding = asyncio.create_task(_feed(shell.socket, line.encode("utf-8", "surrogateescape") + b"\n" + stdin))
        reading = asyncio.create_task(_read(shell.socket, output))
        stopped = asyncio.create_task(self._stopped.wait())
        full = asyncio.create_task(output.full.wait())
        closed = asyncio.create_task(self._closed.wait())
        limit: LimitName | None = None
        usage = before
        try:
            while True:
                remaining = deadline - time.monotonic()
                await asyncio.wait(
                    (reading, stopped, full, closed), timeout=max(0.0, min(remaining, look)),
                    return_when=asyncio.FIRST_COMPLETED,
                )  # fmt: skip
                if self._closed.is_set():
                    raise EOFError("it has been closed")
                # Before `reading.done()`: a command that ended in this very moment has lost output all the same.
                if output.full.is_set():
                    limit = "output"
                    break
                if reading.done():
                    shell.reset = not reading.result()
                    break
                if self._stopped.is_set() or time.monotonic() >= deadline:
                    limit = "seconds"
                    break
                now = self.usage()
                usage = replace(now, memory=max(now.memory, usage.memory))
                limit = broken_limit(now, before, allowed)
                if limit is not None:
                    break
            if limit is not None:
                await self._end_all()
                # The engine ends the output only when the last process that holds it is gone, so wait before judging.
                await asyncio.wait((reading, closed), timeout=_GRACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():  # something in the container still holds the output
                    await self._lose()
        finally:
            tasks = (feeding, reading, stopped, full, closed)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return limit, usage

    async def signal_all(self, number: int) -> None:
        """Send a signal to every process of the sandbox's user."""
        with suppress(*_ERRORS):
            shell = await asyncio.to_thread(self._execute, f"kill -{number} -1")
            try:
                async with asyncio.timeout(_END_SECONDS):
                    await _read(shell.socket, Output(1 << 10))
            finally:
                shell.close()

    async def end_all(self) -> bool:
        """End every process except the first; return whether the container had to be removed."""
        await self._end_all()
        return self._lost

    async def _end_all(self) -> None:
        """End every process except the first; if that fails, end the container."""
        deadline = time.monotonic() + _END_SECONDS
        while not await self._kill_all():
            # If memory has run out, the shell that is to end the other processes may be killed itself, so retry.
            if time.monotonic() >= deadline or not await asyncio.to_thread(self._runs):
                await self._lose()
                return

    async def _kill_all(self) -> bool:
        """End every process except the first, by a shell inside; return whether that succeeded."""
        try:
            shell = await asyncio.to_thread(self._execute, scripts.END_ALL)
            try:
                async with asyncio.timeout(_END_SECONDS):
                    await _read(shell.socket, Output(1 << 16))
            finally:
                shell.close()
            return await asyncio.to_thread(self._exit_code, shell.id) in (0, 1)  # 1: there was nothing to end
        except _ERRORS:
            return False

    async def _lose(self) -> None:
        """Remove the container with all of its processes; it is rebuilt at its next use."""
        self._lost = True
        await asyncio.to_thread(remove_container, self._api, self._id)
        await self._close_next()

    def _runs(self) -> bool:
        """Return whether the container runs.

        Raises:
            docker.errors.DockerException, requests.exceptions.RequestException: the engine does not answer.
        """
        try:
            return bool(self._api.inspect_container(self._id)["State"]["Running"])
        except docker.errors.NotFound:
            return False

    def _ran_out_of_memory(self) -> bool:
        """Return whether the container ended because of memory, the only way for a command to end its first process."""
        try:
            if self._runs():
                return False
            return saw_memory_run_out(self._api, self._id)
        except _ERRORS:
            return False

    async def _rebuild(self) -> None:
        folder, self._home = self._home, -1
        limits = self.limits.but(seconds=60.0)
        try:
            files = None if folder < 0 else await asyncio.to_thread(rescue.save_files, folder, self.limits.disk)
            self._close_descriptors()
            await self._restart(self)
            self._lost = False
            if files is not None:
                await self._carry_out(f"{scripts.no_links('.')}; {scripts.UNPACK}", files.data, limits)
        except (*_ERRORS, EOFError) as error:
            raise SandboxFailed(f"rebuilding the sandbox failed: {error or type(error).__name__}") from None

    async def exit_code(self, shell: str) -> int | None:
        """Return a shell's exit code; None if it stays unknown."""
        return await asyncio.to_thread(self._exit_code, shell)

    def _exit_code(self, shell: str) -> int | None:
        """Wait for a shell's exit code, which is known a moment after its output ends; None if it stays unknown."""
        for _ in range(_EXIT_LOOKS):
            status = self._api.exec_inspect(shell)
            if not status["Running"] and status["ExitCode"] is not None:
                return int(status["ExitCode"])
            time.sleep(0.005)
        return None

    def _reap_zombies(self) -> None:
        raw = getattr(self._input, "_sock", self._input)
        raw.sendall(b"\n")

    def usage(self) -> Usage:
        """Return what the processes use, as far as it is visible here."""
        return Usage() if self._group is None else self._group.usage()

    def limit_counters(self) -> tuple[int, int, int]:
        """Return the counters of broken limits."""
        return (0, 0, 0) if self._group is None else (*self._group.broken(), self._group.most_tasks())

    # ── closing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _kill(self) -> None:
        """Do nothing: the container ends with its input, which closes when this process ends."""

    async def _close(self) -> None:
        self._closed.set()  # the engine does not always end the output of a command whose container is removed
        if self._alone is not None:
            await self._alone.aclose()
        await self._close_next()
        if self._id:
            await asyncio.to_thread(remove_container, self._api, self._id)
        self._close_descriptors()

    async def _close_next(self) -> None:
        """Close the shell that waits, after its start has ended: before, the SDK would lose its open connection."""
        if self._next is not None:
            (shell,) = await asyncio.gather(self._next, return_exceptions=True)
            if isinstance(shell, Shell):
                shell.close()
            self._next = None

    def _close_descriptors(self) -> None:
        """Close the work directory's descriptor and the container's input."""
        folder, self._home = self._home, -1
        if folder >= 0:
            os.close(folder)
        if self._input is not None:
            close_stream(self._input)
            self._input = None


def _line_of(command: Command, no_directory: bytes, watched: bool) -> str:
    """Return the line with which a shell runs a command.

    Args:
        command: what to run.
        no_directory: what it writes to standard error if the directory does not exist.
        watched: whether no control group limits the container.
    """
    words = [*(f"{name}={value}" for name, value in command.env.items()), *command.argv]
    return (
        f"chmod 700 {scripts.HOME}; cd -P -- {scripts.quoted(command.cwd)} 2>/dev/null && "
        f"case $PWD/ in {scripts.HOME}/*) ;; *) false;; esac || {{ {scripts.say(no_directory)}; exit 125; }}; "
        f"full=; {scripts.IS_FULL} && full=1; "
        f"({scripts.limits(command.limits, watched)}; {scripts.FIRST_TO_GO}; "
        f"exec env -i {' '.join(map(scripts.quoted, words))}); code=$?; "
        f"if [ $code = {128 + signal.SIGXFSZ} ] && {scripts.has_largest(command.limits)}; "
        f"then {scripts.say(LARGE_FILE)}; "
        f"{_crowded(command.limits, watched)}"
        f'elif [ $code != 0 ] && [ -z "$full" ] && {scripts.IS_FULL}; then {scripts.say(_DISK_FULL)}; fi; '
        f"{scripts.END_ALL} 2>/dev/null; exit $code"
    )


def _crowded(allowed: Limits, watched: bool) -> str:
    """Return shell code that names the limit on processes, if no control group counts what it refuses."""
    if not watched:
        return ""
    task_limit = allowed.processes + scripts.OVERHEAD_TASKS
    look = f"{{ set -- /proc/[0-9]*; [ $# -ge {task_limit} ]; }}"
    return f"elif [ $code != 0 ] && {look}; then {scripts.say(_CROWDED)}; "


async def _to_thread(work: Callable[..., T], *values: Any) -> T:
    """Run work in a thread. A canceled caller still waits for its end, so that the work can be undone."""
    task = asyncio.create_task(asyncio.to_thread(work, *values))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=_START_SECONDS)
        raise


async def _feed(connection: socket.socket, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(connection, data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:  # the command ended without reading all of its input
        return


async def _read(connection: socket.socket, output: Output) -> bool:
    """Read the engine's stream until it ends; an 8-byte header before each part names its stream and size.

    Output that is not kept is read too: an engine that cannot deliver output does nothing else in the container.

    Returns:
        Whether the engine ended the stream. False if it reset the connection, which it also does behind the output of a
        command that has ended without reading all of its input.
    """
    loop = asyncio.get_running_loop()
    buffer = bytearray()
    while True:
        try:
            part = await loop.sock_recv(connection, 1 << 18)
        except ConnectionResetError:
            return False
        if not part:
            return True
        buffer += part
        while len(buffer) >= 8:
            stream, size = struct.unpack(">BxxxI", bytes(buffer[:8]))
            if len(buffer) < 8 + size:
                break
            output.take(stream, bytes(buffer[8 : 8 + size]))
            del buffer[: 8 + size]
