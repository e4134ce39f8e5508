"""How the program in a sandbox of a service runs one command, measures it, and ends all that it started."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import time

from ludus.sandbox.inside import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_NO_NEW_PRIVILEGES = 38
_CHUNK = 1 << 16
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_POLL_SECONDS = 0.02
_DISK_SECONDS = 0.25
_END_SECONDS = 5.0


def quietly(call: Callable[..., Any], *arguments: Any) -> None:
    """Call a function of the system, whether or not it succeeds."""
    try:
        call(*arguments)
    except (OSError, ValueError):
        pass


def become(user: int) -> None:
    """Give up this process's privileges for good."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def can_become(user: int) -> bool:
    """Return whether a process can get this user id: in a user namespace it may not exist."""
    child = os.fork()
    if child == 0:
        try:
            become(user)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


class Seen:
    """What the processes of a command use at one moment."""

    def __init__(self, user: int | None, roots: set[int]) -> None:
        self.members: list[int] = []
        self.memory = self.tasks = 0
        self.cpu = 0.0
        processes: dict[int, tuple[int, float, int, int]] = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                if user is not None and os.stat(f"/proc/{name}").st_uid != user:
                    continue
                with open(f"/proc/{name}/stat", "rb") as file:
                    words = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if words[0] in (b"Z", b"X") and user is not None:
                continue
            processes[int(name)] = (
                int(words[1]), sum(map(int, words[11:15])) / _TICK, int(words[17]), max(0, int(words[21])) * _PAGE,
            )  # fmt: skip
        for pid, (_, cpu, tasks, memory) in processes.items():
            if user is not None or _descends(pid, processes, roots):
                self.members.append(pid)
                self.cpu += cpu
                self.tasks += tasks
                self.memory += memory


def _descends(pid: int, processes: dict[int, tuple[int, float, int, int]], roots: set[int]) -> bool:
    for _ in range(1000):
        about = processes.get(pid)
        if about is None:
            return False
        pid = about[0]
        if pid in roots:
            return True
    return False


def used(home: str, user: int | None) -> int:
    """Return the bytes that files in the work directory and in /tmp take."""
    total = 0
    folders = [home, "/tmp"]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    about = entry.stat(follow_symlinks=False)
                    if user is None or about.st_uid == user:
                        total += about.st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
        except OSError:
            continue
    return total


def end_all(user: int | None, roots: set[int]) -> None:
    """End all processes of commands: those of their user, or those that descend from the given ones."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        if user is not None:
            child = os.fork()
            if child == 0:
                try:
                    become(user)
                    os.kill(-1, signal.SIGKILL)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
        members = Seen(user, roots).members
        for pid in members if user is None else ():
            quietly(os.kill, pid, signal.SIGKILL)
        _reap()
        if not members:
            return
        time.sleep(0.005)


def end_others(request: dict[str, Any]) -> None:
    """End what canceled requests to this sandbox have left: their commands and, as far as possible, themselves."""
    helpers: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if request["token"].encode() in file.read():
                        helpers.add(int(name))
            except OSError:
                continue
    ancestors = set()
    pid = os.getpid()
    while pid > 1:
        ancestors.add(pid)
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            break
    helpers -= ancestors
    if request["user"] is not None or helpers:
        end_all(request["user"], helpers)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


class _Command:
    """One command while it runs."""

    def __init__(self, request: dict[str, Any], stdin: bytes) -> None:
        self.request, self.limits, self.user = request, request["limits"], request["user"]
        self.stdin = memoryview(stdin)
        self.taken = (bytearray(), bytearray())
        self.cut = [False, False]
        self.room = self.limits["output"]
        self.limit: str | None = None
        self.status: int | None = None
        self.peak = 0
        self.cpu = 0.0
        self.disk = max(self.limits["disk"], used(request["home"], self.user))
        self.began = time.monotonic()
        self.next_look = self.began + _POLL_SECONDS
        self.next_disk = self.began + _DISK_SECONDS
        self.streams: dict[int, int] = {}
        """The descriptors of its output that are open: each with the number of its stream."""
        self.input = -1
        self.pid = 0

    def start(self) -> tuple[int, str] | None:
        """Start the command; return the exit code of a shell and a message if that fails."""
        folder = files._walk(self.request, self.request["cwd"], files._parts(self.request["cwd"]))
        inner_in, self.input = os.pipe()
        outs = [os.pipe(), os.pipe()]
        report, failed = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.fchdir(folder)
                for number, end in enumerate((inner_in, outs[0][1], outs[1][1])):
                    os.dup2(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 64), number)
                self._confine()
                os.closerange(3, failed)
                os.closerange(failed + 1, 1024)
                os.execvpe(self.request["argv"][0], self.request["argv"], self.request["env"])
            except BaseException as error:
                code = getattr(error, "errno", None) or 22
                os.write(failed, b"%d" % code)
            finally:
                os._exit(127)
        for end in (folder, inner_in, failed, outs[0][1], outs[1][1]):
            os.close(end)
        with open(report, "rb") as report_file:
            text = report_file.read()
        for number, (end, _) in enumerate(outs):
            os.set_blocking(end, False)
            self.streams[end] = number
        os.set_blocking(self.input, False)
        if not text:
            return None
        os.waitpid(self.pid, 0)
        code = int(text)
        return (127 if code == 2 else 126), f"{self.request['argv'][0]}: {os.strerror(code)}\n"

    def _confine(self) -> None:
        """Set the limits of the process that becomes the command, and give up privileges."""
        os.setsid()
        os.umask(0o022)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        cpu = int(self.limits["cpu_seconds"]) + 1
        limits = [
            (resource.RLIMIT_FSIZE, self.limits["file_size"]), (resource.RLIMIT_CPU, cpu), (resource.RLIMIT_CORE, 0),
        ]  # fmt: skip
        if self.user is not None:
            limits.append((resource.RLIMIT_NPROC, 4 * self.limits["processes"]))
        for kind, limit in limits:
            hard = resource.getrlimit(kind)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            quietly(resource.setrlimit, kind, (limit, limit))
        if self.user is not None:
            become(self.user)
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)

    def watch(self) -> None:
        """Feed and read the command until its first process ends or a limit is exceeded."""
        waker, wake = os.pipe()
        for end in (waker, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        while self.limit is None:
            self._reap()
            if self.status is not None:
                return
            if not self.stdin and self.input >= 0:
                os.close(self.input)
                self.input = -1
            wait = max(0.0, min(self.next_look, self.began + self.limits["seconds"]) - time.monotonic())
            writable = [self.input] if self.input >= 0 else []
            ready, feed, _ = select.select([waker, *self.streams], writable, [], wait)
            if waker in ready:
                os.read(waker, 1024)
            for end in ready:
                if end in self.streams:
                    self._take(end)
            if feed:
                self._feed()
            self._look()

    def _feed(self) -> None:
        try:
            self.stdin = self.stdin[os.write(self.input, self.stdin[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self.stdin = self.stdin[:0]

    def _take(self, end: int) -> None:
        number = self.streams[end]
        try:
            part = os.read(end, _CHUNK)
        except BlockingIOError:
            return
        if not part:
            del self.streams[end]
            os.close(end)
            return
        self.taken[number].extend(part[: self.room])
        if len(part) > self.room:
            self.cut[number] = True
            self.limit = self.limit or "output"
        self.room = max(0, self.room - len(part))

    def _reap(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    self.status = status
        except ChildProcessError:
            return

    def _look(self) -> None:
        """Measure the command, and name the limit that it exceeds."""
        now = time.monotonic()
        if now >= self.began + self.limits["seconds"]:
            self.limit = self.limit or "seconds"
        if now < self.next_look:
            return
        usage = Seen(self.user, {os.getpid()})
        self._count(usage)
        if self.cpu > self.limits["cpu_seconds"]:
            self.limit = self.limit or "cpu_seconds"
        elif usage.tasks > self.limits["processes"]:  # before memory: pages that many processes share count for each
            self.limit = self.limit or "processes"
        elif usage.memory > self.limits["memory"]:
            self.limit = self.limit or "memory"
        if now >= self.next_disk:
            self._look_at_disk()
            self.next_disk = time.monotonic() + max(_DISK_SECONDS, 10 * (time.monotonic() - now))
        after = time.monotonic()
        self.next_look = after + max(_POLL_SECONDS, 4 * (after - now))  # a fifth of a processor at most

    def _look_at_disk(self) -> None:
        if used(self.request["home"], self.user) > self.disk:
            self.limit = self.limit or "disk"

    def _count(self, usage: Seen | None) -> None:
        gone = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu = max(self.cpu, gone.ru_utime + gone.ru_stime + (usage.cpu if usage else 0.0))
        self.peak = max(self.peak, gone.ru_maxrss * 1024, usage.memory if usage else 0)

    def finish(self) -> tuple[dict[str, Any], bytes]:
        """End all of its processes, read what is left of its output, and describe how it ended."""
        took = time.monotonic() - self.began
        signal.set_wakeup_fd(-1)
        if self.status is None:  # ended by a limit: the first process must be reaped under its own status
            quietly(os.kill, self.pid, signal.SIGKILL)
            self.status = os.waitpid(self.pid, 0)[1]
        end_all(self.user, {os.getpid()})
        self._count(None)
        for end in tuple(self.streams):
            before = -1
            while end in self.streams and before != len(self.taken[self.streams[end]]):
                before = len(self.taken[self.streams[end]])
                self._take(end)
        code = os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None
        number = os.WTERMSIG(self.status) if code is None else None
        if self.limit is None and number in (signal.SIGXCPU, signal.SIGXFSZ):
            self.limit = "cpu_seconds" if number == signal.SIGXCPU else "file_size"
        self._look_at_disk()
        described = {
            "exit_code": code, "signal": number, "limit": self.limit, "seconds": took, "cpu_seconds": self.cpu,
            "peak_memory": self.peak, "cut": self.cut, "out": len(self.taken[0]),
        }  # fmt: skip
        return described, bytes(self.taken[0] + self.taken[1])


def run(request: dict[str, Any], stdin: bytes) -> tuple[dict[str, Any], bytes]:
    """Run one command until it ends, and return how it ended and its output.

    Raises:
        Refused: there is no directory `cwd`.
    """
    command = _Command(request, stdin)
    if any("\0" in word for word in request["argv"]):
        failed: tuple[int, str] | None = (126, "the command contains a NUL character\n")
    else:
        failed = command.start()
    if failed is not None:
        described = {
            "exit_code": failed[0], "signal": None, "limit": None, "seconds": 0.0, "cpu_seconds": 0.0,
            "peak_memory": 0, "cut": [False, False], "out": 0,
        }  # fmt: skip
        return described, failed[1].encode()
    command.watch()
    return command.finish()
