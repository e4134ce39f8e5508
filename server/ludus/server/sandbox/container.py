"""One container as a `Sandbox`.

Starting a command in a container costs the engine some 50 ms. So a shell is started ahead of each command and waits
for its input's first line, which tells it what to become; the command then begins within milliseconds.
"""

from __future__ import annotations

import asyncio
import io
import shlex
import signal
import socket
import stat
import struct
import tarfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import docker.errors
import requests.exceptions

from ludus.server.sandbox.base import Box, Command
from ludus.server.sandbox.cgroups import Meter, Usage, is_in_group
from ludus.server.sandbox.doors import Rendezvous, step_in
from ludus.server.sandbox.errors import SandboxFailed, SandboxFileError, SandboxUnsupported
from ludus.server.sandbox.inside.files import MAX_ENTRIES
from ludus.server.sandbox.model import FileInfo, LimitName, Limits, RunResult, SandboxSettings, Snapshot

HOME: Final = "/box"

_ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": HOME, "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
}  # fmt: skip
_WAITING: Final = "N='\n'; echo; IFS= read -r line && eval \"$line\""
_READY: Final = b"\1\0\0\0\0\0\0\1\n"
_END_ALL: Final = "kill -9 -1"
_IS_FULL: Final = f"stat -f -c '%a %d' {HOME} /tmp | grep -qE '^0 | 0$'"
_DISK_FULL: Final = b"\0ludus: disk full\0"
_LARGE_FILE: Final = b"\0ludus: large file\0"
_NO_DIRECTORY: Final = b"\0ludus: no such directory\0"
_RENDEZVOUS_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.1
_END_SECONDS: Final = 5.0
_BESIDE: Final = 2
"""Tasks that are not the command's: the first process, and the shell above it."""
_EXIT_LOOKS: Final = 400
_GRACE_SECONDS: Final = 20.0
_START_SECONDS: Final = 60.0
"""For the first shell; an engine on a machine that is out of breath has taken more than twenty."""
_ERRORS: Final = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)
_FILE_ERRORS: Final = {
    61: "leads through a link", 62: "is not a plain file", 64: "is not a directory",
}  # fmt: skip


@dataclass(slots=True)
class _Shell:
    """A shell that waits for what to become."""

    id: str
    stream: Any
    socket: socket.socket
    early: bytes
    """What it had written when the engine answered, and came in with the answer's head."""

    def close(self) -> None:
        """Let go of it."""
        _shut(self.stream)


@dataclass(slots=True)
class _Output:
    """What a command wrote, as far as it was kept."""

    room: int
    parts: dict[int, bytearray] = field(default_factory=lambda: {1: bytearray(), 2: bytearray()})
    cut: set[int] = field(default_factory=set)
    full: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, stream: int, data: bytes) -> None:
        """Keep as much as there is room for."""
        kept = data[: self.room]
        self.parts[stream] += kept
        self.room -= len(kept)
        if len(kept) < len(data):
            self.cut.add(stream)
            self.full.set()


class ContainerBox(Box):
    """A box whose commands the engine starts."""

    def __init__(
        self, api: Any, settings: SandboxSettings, user: int,
        another: Callable[[SandboxSettings], Awaitable[Box]], on_close: Callable[[Box], None],
    ) -> None:  # fmt: skip
        super().__init__(settings, _ENVIRONMENT, another, on_close)
        self._api = api
        self._user = user
        self._id = ""
        self._input: Any = None
        self._meter: Meter | None = None
        self._next: asyncio.Task[_Shell] | None = None
        self._stopped = asyncio.Event()
        self._lost = False

    async def start(self, create: Callable[[], str], rendezvous: Rendezvous | None) -> None:
        """Start the container, and a first shell in it; where it is to have a way out, with that.

        Raises:
            SandboxUnsupported: the way out cannot be made.
        """
        self._id = await asyncio.to_thread(create)
        await asyncio.to_thread(self._begin)
        if self.settings.network:
            self._open_way_out(await asyncio.to_thread(self._door, rendezvous))
        self._next = asyncio.create_task(asyncio.to_thread(self._open_shell))
        await asyncio.shield(self._next)

    def _begin(self) -> None:
        # Attached before it starts: its input must never be without us.
        self._input = self._api.attach_socket(self._id, params={"stdin": 1, "stream": 1})
        self._api.start(self._id)
        # The engine's own figures take it a second; the kernel's are there at once where the engine is on this machine.
        self._meter = Meter.of(self._api.inspect_container(self._id)["State"]["Pid"], self._id)

    def _door(self, rendezvous: Rendezvous | None) -> socket.socket:
        """A listening socket in the container's network."""
        if rendezvous is None:
            process = self._api.inspect_container(self._id)["State"]["Pid"]
            if not is_in_group(process, self._id):
                raise SandboxUnsupported("an allowlist needs a Docker engine on this machine; this one runs elsewhere")
            try:
                return step_in(process)
            except PermissionError:
                raise SandboxUnsupported(
                    "an allowlist takes the right to enter a container's network (CAP_SYS_ADMIN), which this server "
                    "lacks although it is root; give it that right, or run it as an ordinary user, with `python3` in "
                    "the image"
                ) from None
        said = self._output_of(["python3", "-I", "-S", "-c", Rendezvous.PROGRAM])
        try:
            return rendezvous.receive(_RENDEZVOUS_SECONDS)
        except OSError:
            raise SandboxUnsupported(
                f"the image {self.settings.image!r} cannot open the way out that an allowlist needs: it takes "
                f"`python3` in the image and an engine on this machine ({said.strip()[-200:] or 'no answer'}); install "
                "Python in the image, run the server as root, or use bubblewrap"
            ) from None

    def _output_of(self, argv: list[str]) -> str:
        made = self._api.exec_create(self._id, argv, user=f"{self._user}:{self._user}")
        return bytes(self._api.exec_start(made["Id"])).decode("utf-8", "replace")

    def _open_shell(self) -> _Shell:
        """Start a shell, and wait until it waits."""
        shell = self._execute(_WAITING)
        try:
            shell.socket.settimeout(_START_SECONDS)
            said = shell.early
            while len(said) < len(_READY) and (more := shell.socket.recv(len(_READY) - len(said))):
                said += more
            if said != _READY:
                raise OSError("no shell starts in it: its image must have /bin/sh")
            shell.socket.setblocking(False)
        except OSError:
            shell.close()
            raise
        return shell

    def _execute(self, script: str) -> _Shell:
        made = self._api.exec_create(self._id, ["/bin/sh", "-c", script], stdin=True, user=f"{self._user}:{self._user}")
        stream = self._api.exec_start(made["Id"], socket=True)
        raw = getattr(stream, "_sock", stream)
        raw.setblocking(False)
        return _Shell(made["Id"], stream, raw, _buffered(stream))

    @property
    def alive(self) -> bool:
        """See `Box.alive`."""
        return self._closing is None and not self._lost

    # ── running ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _stop(self) -> None:
        self._stopped.set()

    async def _run(self, command: Command) -> RunResult:
        if any("\0" in word for word in command.argv):
            return RunResult(b"", b"embedded null byte\n", 126, None, None, 0.0, 0.0, 0)
        words = [*(f"{name}={value}" for name, value in command.env.items()), *command.argv]
        line = (
            f"chmod 700 {HOME}; cd -P -- {_quoted(command.cwd)} 2>/dev/null && "
            f"case $PWD/ in {HOME}/*) ;; *) false;; esac || {{ {_say(_NO_DIRECTORY)}; exit 125; }}; "
            f"full=; {_IS_FULL} && full=1; "
            f"({_limits(command.limits)}; "
            f"exec env -i {' '.join(map(_quoted, words))}); code=$?; "
            f"if [ $code = {128 + signal.SIGXFSZ} ] && {_has_largest(command.limits)}; then {_say(_LARGE_FILE)}; "
            f'elif [ $code != 0 ] && [ -z "$full" ] && {_IS_FULL}; then {_say(_DISK_FULL)}; fi; '
            f"{_END_ALL} 2>/dev/null; exit $code"
        )
        result = await self._line(line, command.stdin, command.limits)
        if result.exit_code == 125 and result.stderr == _NO_DIRECTORY:
            raise SandboxFileError(f"there is no directory {command.cwd!r} below the work directory")
        if result.stderr.endswith(_DISK_FULL):
            limit = result.limit or "disk"
            return replace(result, stderr=result.stderr.removesuffix(_DISK_FULL), limit=limit)
        return result

    async def _line(self, line: str, stdin: bytes, allowed: Limits) -> RunResult:
        """Have the shell that waits carry a line out; it is this box's turn."""
        self._stopped.clear()
        try:
            return await self._carry_out(line, stdin, allowed)
        except (*_ERRORS, EOFError) as error:
            self._lost = True
            await self.aclose()
            raise SandboxFailed(f"the sandbox is gone: {error or type(error).__name__}") from None

    async def _carry_out(self, line: str, stdin: bytes, allowed: Limits) -> RunResult:
        if not self.alive or self._next is None:
            raise EOFError("it has been closed")
        shell = await self._next
        self._next = None
        output = _Output(allowed.output)
        before, met = self._usage(), self._met()
        began = time.monotonic()
        try:
            limit, usage = await self._attend(shell, line, stdin, allowed, output, before)
            took = time.monotonic() - began
            if self._closing is not None:
                raise EOFError("it has been closed")
            code = None if self._lost else await asyncio.to_thread(self._exit_code, shell.id)
            met_now = self._met()
        finally:
            shell.close()
        if code is not None and code > 128 and limit is None:
            await self._end_all()  # what ended may have been the shell, before it could end the rest
        after = self._usage()
        if limit is None and code != 0:
            limit = _met_quietly(met, met_now, allowed)
        if not self._lost:
            self._bury()
            self._next = asyncio.create_task(asyncio.to_thread(self._open_shell))
        return _result(output, code, limit, took, before, usage, after, allowed)

    async def _attend(
        self, shell: _Shell, line: str, stdin: bytes, allowed: Limits, output: _Output, before: Usage
    ) -> tuple[LimitName | None, Usage]:
        """Feed the command, read what it writes, and watch what it uses, until it or a limit ends it."""
        deadline = time.monotonic() + allowed.seconds
        feeding = asyncio.create_task(_feed(shell.socket, line.encode("utf-8", "surrogateescape") + b"\n" + stdin))
        reading = asyncio.create_task(_read(shell.socket, output))
        stopped = asyncio.create_task(self._stopped.wait())
        full = asyncio.create_task(output.full.wait())
        limit: LimitName | None = None
        usage = before
        try:
            while True:
                left = deadline - time.monotonic()
                await asyncio.wait(
                    (reading, stopped, full), timeout=max(0.0, min(left, _LOOK_SECONDS)),
                    return_when=asyncio.FIRST_COMPLETED,
                )  # fmt: skip
                if output.full.is_set():
                    limit = "output"
                    break
                if reading.done():
                    reading.result()
                    break
                if self._stopped.is_set() or time.monotonic() >= deadline:
                    limit = "seconds"
                    break
                now = self._usage()
                usage = replace(now, memory=max(now.memory, usage.memory))
                limit = _broken(now, before, allowed)
                if limit is not None:
                    break
            if limit is not None:
                await self._end_all()
                async with asyncio.timeout(_GRACE_SECONDS):
                    await reading
        finally:
            for task in (feeding, reading, stopped, full):
                task.cancel()
            await asyncio.gather(feeding, reading, stopped, full, return_exceptions=True)
        return limit, usage

    async def _end_all(self) -> None:
        """End every process but the first; if that cannot be done, end the container."""
        try:
            shell = await asyncio.to_thread(self._execute, _END_ALL)
            try:
                async with asyncio.timeout(_END_SECONDS):
                    said = _Output(1 << 16)
                    await _read(shell.socket, said)
            finally:
                shell.close()
            if await asyncio.to_thread(self._exit_code, shell.id) in (0, 1):  # 1: there was nothing to end
                return
        except TimeoutError:
            pass
        self._lost = True
        await asyncio.to_thread(self._remove)

    def _exit_code(self, shell: str) -> int | None:
        """How a shell ended; its output ends a moment before it does."""
        for _ in range(_EXIT_LOOKS):
            found = self._api.exec_inspect(shell)
            if not found["Running"] and found["ExitCode"] is not None:
                return int(found["ExitCode"])
            time.sleep(0.005)
        return None

    def _bury(self) -> None:
        raw = getattr(self._input, "_sock", self._input)
        raw.sendall(b"\n")

    def _usage(self) -> Usage:
        return Usage() if self._meter is None else self._meter.read()

    def _met(self) -> tuple[int, int, int]:
        return (0, 0, 0) if self._meter is None else (*self._meter.broken(), self._meter.most_tasks())

    # ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _script(
        self,
        path: str,
        script: str,
        stdin: bytes = b"",
        output: int = 1 << 16,
        too_large: str = "is larger than allowed",
    ) -> bytes:
        allowed = self.limits.but(seconds=60.0, output=output)
        result = await self._in_turn(lambda: self._line(script, stdin, allowed))
        if result.limit == "output":
            raise SandboxFileError(f"{path!r} {too_large}")
        if result.exit_code == 63:
            raise SandboxFileError(f"{path!r} has {int(result.stderr):,} bytes, more than allowed")
        if result.exit_code != 0:
            why = _FILE_ERRORS.get(result.exit_code or 0) or result.stderr.decode("utf-8", "replace").strip()
            raise SandboxFileError(f"{path!r} {why or result.ending}")
        return result.stdout

    async def read(self, path: str, *, limit: int = 16 * 1024 * 1024) -> bytes:
        """See `Sandbox.read`."""
        name = _quoted("./" + "/".join(_parts(path)))
        script = (
            f"{_no_links(path)}; [ -e {name} ] || {{ echo does not exist >&2; exit 1; }}; [ -f {name} ] || exit 62; "
            f"size=$(stat -c %s {name}); [ $size -le {limit} ] || {{ echo $size >&2; exit 63; }}; exec cat {name}"
        )
        return await self._script(path, script, output=limit + 1024)

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """See `Sandbox.write`."""
        parts = _parts(path)
        if not parts:
            raise SandboxFileError(f"{path!r} is a directory")
        name, folder = _quoted("./" + "/".join(parts)), _quoted("./" + "/".join(parts[:-1]))
        mode = "755" if executable else "644"
        script = (
            f"umask 022; {_no_links(path, last=False)}; mkdir -p {folder} && "
            f"if [ -L {name} ]; then rm {name}; fi && [ ! -d {name} ] && "
            f"head -c {len(data)} > {folder}/.ludus-new && chmod {mode} {folder}/.ludus-new && "
            f"exec mv -f {folder}/.ludus-new {name}"
        )
        await self._script(path, script, data)

    async def list(self, path: str = ".") -> tuple[FileInfo, ...]:
        """See `Sandbox.list`."""
        name = _quoted("./" + "/".join(_parts(path)))
        script = (
            f"{_no_links(path)}; [ -d {name} ] || exit 64; cd {name} && "
            "find . -mindepth 1 -maxdepth 1 -print0 && echo && "
            "find . -mindepth 1 -maxdepth 1 -exec stat -c '%f %s' {} +"
        )
        text = await self._script(path, script, output=8 * 1024 * 1024)
        names, _, about = text.rpartition(b"\0")
        # Both go through the directory in its own order, and nothing changes it in between.
        entries = map(_file_info, names.split(b"\0") if about.strip() else (), about.split(b"\n")[1:])
        found = sorted(entries, key=lambda one: one.name)
        if len(found) > MAX_ENTRIES:
            raise SandboxFileError(f"{path!r} has more than {MAX_ENTRIES:,} entries")
        return tuple(found)

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        room = self.limits.disk + self.limits.inodes * 1024
        script = (
            "find . -type d ! -perm -500 -exec chmod u+rx {} \\; ; find . -type f ! -perm -400 -exec chmod u+r {} +; "
            "exec tar cf - ."
        )
        data = await self._script("the files", script, output=room, too_large="are larger than the limit on disk")
        return Snapshot(await asyncio.to_thread(_only_files, data, self.limits.disk))

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        await self._script("the files", f"{_CLEAR}; exec tar xof -", snapshot.data)

    # ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _close(self) -> None:
        if self._next is not None:
            # Not removed while a shell is on its way: the SDK would lose the connection that it asked for it on.
            (shell,) = await asyncio.gather(self._next, return_exceptions=True)
            if isinstance(shell, _Shell):
                shell.close()
        if self._id:
            await asyncio.to_thread(self._remove)
        if self._input is not None:
            _shut(self._input)

    def _remove(self) -> None:
        try:
            self._api.remove_container(self._id, force=True)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code != 409:  # it is being removed already, by itself
                raise


def _buffered(stream: Any) -> bytes:
    """What came with the head of the answer: the SDK read it into a buffer, and gave the socket below that."""
    try:
        return bytes(stream._response.raw._fp.fp.peek())
    except (AttributeError, OSError):  # no such buffer (ssh), or an empty one (TLS)
        return b""


def _shut(stream: Any) -> None:
    """Close a stream that the engine's SDK took over from HTTP, with all that it came in."""
    raw, response = getattr(stream, "_sock", stream), getattr(stream, "_response", None)
    for part in (response, stream, raw):
        with suppress(ValueError, OSError):  # each closes some of the others, and minds when they are closed
            if part is not None:
                part.close()


async def _feed(connection: socket.socket, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(connection, data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:  # it ended without reading all of its input
        return


async def _read(connection: socket.socket, output: _Output) -> None:
    """Read what the engine sends to its end, each part after a header that says whose it is.

    To its end even when nothing more is kept: an engine that cannot get rid of output does nothing else in the box.
    """
    loop = asyncio.get_running_loop()
    buffer = bytearray()
    while part := await loop.sock_recv(connection, 1 << 18):
        buffer += part
        while len(buffer) >= 8:
            stream, size = struct.unpack(">BxxxI", bytes(buffer[:8]))
            if len(buffer) < 8 + size:
                break
            output.take(stream, bytes(buffer[8 : 8 + size]))
            del buffer[: 8 + size]


def _broken(usage: Usage, before: Usage, allowed: Limits) -> LimitName | None:
    if usage.memory > allowed.memory:
        return "memory"
    if usage.tasks > allowed.processes + _BESIDE:
        return "processes"
    return "cpu_seconds" if usage.cpu - before.cpu > allowed.cpu_seconds else None


def _met_quietly(before: tuple[int, int, int], after: tuple[int, int, int], allowed: Limits) -> LimitName | None:
    """The limit that made calls of a command fail.

    The shell's own limit on processes counts no refusals. But it refuses where there are as many as it allows, and the
    most that there were is told.
    """
    if after[0] > before[0]:
        return "memory"
    crowded = before[2] < allowed.processes + _BESIDE + 1 <= after[2]
    return "processes" if after[1] > before[1] or crowded else None


def _result(
    output: _Output, code: int | None, limit: LimitName | None, took: float, before: Usage, usage: Usage,
    after: Usage, allowed: Limits,
) -> RunResult:  # fmt: skip
    """What came of a command. Its shell tells of a signal by an exit code, which the command may have chosen itself.

    So those of limits are believed only where something else speaks for them.
    """
    number = None if code is None or not 128 < code <= 192 else code - 128
    errors = bytes(output.parts[2])
    if code is None or limit is not None:
        number = signal.SIGKILL
    elif number == signal.SIGXCPU:
        spent = after == Usage() or after.cpu - before.cpu >= allowed.cpu_seconds
        limit, number = ("cpu_seconds", number) if spent else (None, None)
    elif number == signal.SIGXFSZ:
        limit, number = ("file_size", number) if errors.endswith(_LARGE_FILE) else (None, None)
    return RunResult(
        bytes(output.parts[1]), errors.removesuffix(_LARGE_FILE), code if number is None else None, number, limit, took,
        max(0.0, after.cpu - before.cpu), max(usage.memory, after.memory), 1 in output.cut, 2 in output.cut,
    )  # fmt: skip


def _limits(allowed: Limits) -> str:
    """The shell's own limits. That on processes is below the container's, so that a shell to end them still starts."""
    processes = allowed.processes + _BESIDE
    return (
        f"ulimit -t {int(allowed.cpu_seconds) + 1}; ulimit -f {allowed.file_size // 512}; "
        f"{{ ulimit -u {processes} || ulimit -p {processes}; }} 2>/dev/null"
    )


def _has_largest(allowed: Limits) -> str:
    """Shell code that finds a file of the largest size that the shell's limit allows."""
    largest = allowed.file_size // 512 * 512
    return f"find {HOME} /tmp -type f -size +{largest - 1}c 2>/dev/null | grep -q ."


def _say(mark: bytes) -> str:
    """Shell code that adds a mark to the errors."""
    return f"printf '{mark.decode().replace(chr(0), chr(92) + '0')}' >&2"


def _quoted(word: str) -> str:
    """A word for the shell on one line: line ends come from the variable N."""
    return '"$N"'.join(shlex.quote(part) for part in word.split("\n"))


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise SandboxFileError(f"{path!r} is not a path below the work directory")
    return parts


def _no_links(path: str, *, last: bool = True) -> str:
    """Shell code that refuses a path with links in it. Nothing else runs in the box meanwhile, so it stays true."""
    parts = _parts(path)
    steps = ["./" + "/".join(parts[: end + 1]) for end in range(len(parts) if last else len(parts) - 1)]
    checks = [f"[ ! -L {_quoted(step)} ] || exit 61" for step in steps]
    return "; ".join([f"chmod 700 {HOME}", f"cd {HOME}", *checks])


_CLEAR: Final = (
    'n=0; while [ -n "$(ls -A)" ] && [ $n -lt 1000 ]; do n=$((n+1)); '
    "find . -maxdepth 100 -type d ! -perm -700 -exec chmod 700 {} \\; ; "
    'find . -mindepth 100 -maxdepth 100 -type d -exec sh -c \'mv "$1" "$(mktemp -d ./.ludus-XXXXXX)"\' sh {} \\; ; '
    "find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +; done"
)
"""Empties a directory, a hundred levels at a time: what lies deeper is moved up, as `rm` can go only so deep."""


def _file_info(name: bytes, about: bytes) -> FileInfo:
    mode_text, size = about.split()
    mode = int(mode_text, 16)
    kinds: dict[int, Literal["file", "directory", "link", "other"]] = {
        stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link",
    }  # fmt: skip
    kind = kinds.get(stat.S_IFMT(mode), "other")
    text = name.removeprefix(b"./").decode("utf-8", "surrogateescape")
    return FileInfo(text, kind, int(size), kind == "file" and bool(mode & 0o100))


def _only_files(data: bytes, room: int) -> bytes:
    """The archive without pipes, sockets and devices, and with directories that can be written to by who unpacks it."""
    kept = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as source, tarfile.open(fileobj=kept, mode="w") as target:
        for member in source:
            if member.isfile() or member.isdir() or member.issym() or member.islnk():
                room -= member.size
                if room < 0:
                    raise SandboxFileError("the files are larger than the limit on disk")
                if member.isdir():
                    member.mode |= 0o700
                target.addfile(member, source.extractfile(member) if member.isfile() else None)
    return kept.getvalue()
