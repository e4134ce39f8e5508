"""One command inside a sandbox: start it, write its input, watch its limits, and end all processes that it started.

How this works:

- `Command.run` creates three pipes and forks. The child (`_become`) starts a session, takes the pipes as its standard
  streams, sets its resource limits, and executes the program. The parent then reports to the server that the command
  has started, so that the server starts its own clock.
- `_attend` polls the pipes, a pidfd of the child, and the control socket. It returns when the child has ended, a limit
  is exceeded, or the control socket is readable: the server canceled the command, or is gone.
- Every `TICK`, or less often if there are many processes, `Tree.look` sums up what all processes of the command use,
  from `/proc` and, if there is one, from the control group.
- Some limits make system calls fail, or end the process by a signal, before `Tree.look` notices. After a failed
  command, `_name_quiet_limits` finds out whether it reached one of those.
- `Tree.kill` then ends all processes. In a namespace of its own (`alone`) that is one system call, since every other
  process belongs to the command. Otherwise all descendants are stopped and killed until none is left.
- Output that is still in the pipes is read at the end, and `_result` describes the outcome for the server.
- CPU time comes from the control group. Without one it is computed from processes that were waited for, that are
  alive, and that disappeared between two looks.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import time

from ludus.sandbox.inside import confine
from ludus.sandbox.inside.messages import Refused, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

TICK = 0.02
"""Seconds between two checks of what the processes of a command use."""
_CHUNK = 65536
_SOCKET_BYTES = 2 * 212992
"""Bytes that a local socket may hold: twice `net.core.wmem_default`, since the last message may exceed that."""
_PAGE = resource.getpagesize()
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Tree:
    """All processes of the current command: their resource usage, and how to end them."""

    def __init__(self, alone: bool, meter: int = -1) -> None:
        self.alone = alone
        """Whether the sandbox has its own process namespace."""
        self.status: int | None = None
        self.peak = 0
        self._meter = meter
        """A descriptor that yields the CPU time of the sandbox's control group; -1 without one."""
        self._before = self._metered() if meter >= 0 else 0.0
        self._counts_sockets = alone and meter < 0
        self._sockets = sockets() if self._counts_sockets else 0
        """The number of sockets before the command started: the egress proxy's listening socket, if any."""
        self._waited = 0.0
        """CPU time of processes that this process has waited for."""
        self._seen: dict[tuple[int, int], _Usage] = {}
        self._gone = self._passed_on = 0.0
        """CPU time of disappeared processes when last seen, and the part that living parents took over by waiting."""

    def _metered(self) -> float:
        """Return the control group's CPU time without that of this process."""
        words = os.pread(self._meter, 256, 0).split()
        used = int(words[1]) / 1e6 if words[0] == b"usage_usec" else int(words[0]) / 1e9
        return used - time.process_time()

    def cpu(self) -> float:
        """Return the CPU seconds used so far.

        Without a control group, the kernel drops the CPU time of a process whose parent ignores SIGCHLD, because no
        process waits for it. So the CPU time of each disappeared process, when last seen, is kept. The part of it that
        neither a living parent nor this process took over by waiting is added.
        """
        if self._meter >= 0:
            return max(0.0, self._metered() - self._before)
        living = sum(one.own + one.children for one in self._seen.values())
        return self._waited + living + max(0.0, self._gone - self._passed_on - self._waited)

    def _note(self, seen: dict[tuple[int, int], _Usage]) -> None:
        """Record the living processes, and the CPU time of those that disappeared since the last call."""
        for key, before in self._seen.items():
            # Without a namespace, a process that is just getting a new parent can be missing from `seen`.
            if self.alone and key not in seen:
                self._gone += before.own + before.children
        for key, now in seen.items():
            known = self._seen.get(key)
            self._passed_on += now.children - (known.children if known else 0.0)
        self._seen = seen

    def pids(self) -> list[int]:
        """Return the ids of all processes of the command, which are all except this one."""
        me = os.getpid()
        if self.alone:
            return [pid for name in os.listdir("/proc") if name.isdigit() and (pid := int(name)) != me]
        found, wanted = [], [me]
        parents = {pid: int(fields[1]) for pid in _numbers("/proc") if (fields := _fields(str(pid))) is not None}
        while wanted:
            above = set(wanted)
            wanted = [pid for pid, parent in parents.items() if parent in above]
            found += wanted
        return found

    def look(self, limits: dict[str, Any]) -> str | None:
        """Return the limit that the processes together exceed, or None."""
        seen = {(pid, usage.began): usage for pid in self.pids() if (usage := _usage(pid)) is not None}
        self._note(seen)
        memory = sum(one.memory for one in seen.values())
        if memory > limits["memory"]:
            # The sum counts shared pages once per process, so compute it again with proportional shares.
            memory = sum(_proportional(pid, one) for (pid, _), one in seen.items())
        if self._counts_sockets:  # the kernel may hold as much for each socket, and no process's memory counts it
            memory += max(0, sockets() - self._sockets) * _SOCKET_BYTES
        self.peak = max(self.peak, memory)
        if memory > limits["memory"]:
            return "memory"
        if sum(one.tasks for one in seen.values()) > limits["processes"]:
            return "processes"
        return "cpu_seconds" if self.cpu() > limits["cpu_seconds"] else None

    def reap(self, first: int, *, wait: bool = False) -> bool:
        """Reap ended processes, record how `first` ended, and return whether there are other processes."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, 0 if wait else os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._waited += usage.ru_utime + usage.ru_stime
            self.peak = max(self.peak, usage.ru_maxrss * 1024)
            if pid == first:
                self.status = status

    def kill(self, first: int) -> None:
        """End all processes, and return when none is left."""
        if self.alone:
            # One system call under the kernel's lock, so that no process can escape by forking.
            try:
                os.kill(-1, confine.SIGKILL)
            except ProcessLookupError:
                pass
            self.reap(first, wait=True)
        else:
            self._kill_each(first)
        self._note({})

    def _kill_each(self, first: int) -> None:
        while True:
            for number in (confine.SIGSTOP, confine.SIGKILL):
                for pid in self.pids():
                    try:
                        os.kill(pid, number)
                    except (ProcessLookupError, PermissionError):
                        pass
            if not self.reap(first) and not self.pids():
                return
            time.sleep(0.001)


def sockets() -> int:
    """Return how many sockets there are in the sandbox's own network, Unix sockets included."""
    with open("/proc/self/net/sockstat", "rb") as file:
        return int(file.readline().split()[2])


def _numbers(path: str) -> list[int]:
    return [int(name) for name in os.listdir(path) if name.isdigit()]


def _fields(place: str) -> list[bytes] | None:
    try:
        with open(f"/proc/{place}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


class _Usage:
    """The resource usage of one process, from the fields of its `/proc/…/stat` after the name."""

    def __init__(self, fields: list[bytes]) -> None:
        self.own = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
        """Its CPU seconds."""
        self.children = (int(fields[13]) + int(fields[14])) / _TICKS_PER_SECOND
        """The CPU seconds of descendants that were waited for."""
        self.tasks = int(fields[17])
        self.began = int(fields[19])
        self.memory = int(fields[21]) * _PAGE
        """Its resident bytes."""


def _usage(pid: int) -> _Usage | None:
    fields = _fields(str(pid))
    if fields is None:
        return None
    usage = _Usage(fields)
    if fields[0] == b"Z" and usage.tasks > 1:
        usage.memory = max((one.memory for one in _threads(pid)), default=0)
    return usage


def _threads(pid: int) -> list[_Usage]:
    """Return the usage that each thread of a process reports: its first thread reports no memory once it has ended."""
    try:
        threads = _numbers(f"/proc/{pid}/task")
    except OSError:
        return []
    return [_Usage(fields) for thread in threads if (fields := _fields(f"{pid}/task/{thread}")) is not None]


def _proportional(pid: int, usage: _Usage) -> int:
    """Return the resident bytes of a process, with its proportional share of pages that it shares with others."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return usage.memory


class Command:
    """One command, from its start until all processes that it started have ended."""

    def __init__(self, asked: dict[str, Any], stdin: bytes, config: dict[str, Any], control: int) -> None:
        self.asked = asked
        self.limits = asked["limits"]
        self.config = config
        self.control = control
        self.tree = Tree(config["alone"], config["meter"])
        self.full = self._disk_is_full()
        self.stdin = memoryview(stdin)
        self.taken: dict[int, bytearray] = {}
        self.cut: set[int] = set()
        self.room = self.limits["output"]
        self.limit: str | None = None
        self.gone = False

    def run(self) -> tuple[dict[str, Any], bytes]:
        """Run the command until it ends; return the header and the bytes of the reply."""
        ends = [os.pipe(), os.pipe(), os.pipe()]
        self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            _become(self.asked, self.config, ends[0][0], ends[1][1], ends[2][1])
        self.input, self.outputs = ends[0][1], (ends[1][0], ends[2][0])
        for end in (ends[0][0], ends[1][1], ends[2][1]):
            os.close(end)
        for end in (self.input, *self.outputs):
            os.set_blocking(end, False)
        self.taken = {end: bytearray() for end in self.outputs}
        pidfd = os.pidfd_open(self.pid)
        try:
            # The server starts its own clock here, and ends the sandbox if this loop does not end the command in time.
            send(self.control, {"more": True, "began": True})
            self._attend(pidfd)
            took = time.monotonic() - self.began
            self._name_quiet_limits()
        finally:
            self.tree.kill(self.pid)
            try:
                for end in self.outputs:
                    self._take(end)
            finally:
                for end in (pidfd, *([self.input] if self.input >= 0 else []), *self.outputs):
                    os.close(end)
        return self._result(took)

    def _attend(self, pidfd: int) -> None:
        poller = select.poll()
        for end in (*self.outputs, pidfd, self.control):
            poller.register(end, select.POLLIN)
        if self.stdin:
            poller.register(self.input, select.POLLOUT)
        else:
            self._close_input(None)
        deadline = self.began + self.limits["seconds"]
        look = self.began + TICK
        while self.limit is None and not self.gone:
            now = time.monotonic()
            for end, _ in poller.poll(max(0.0, min(look, deadline) - now) * 1000):
                if end == pidfd:
                    return
                if end == self.control:
                    self.gone = True
                elif end == self.input:
                    self._feed(poller)
                elif not self._take(end):
                    poller.unregister(end)
            now = time.monotonic()
            if now >= deadline:
                self.limit = "seconds"
            elif now >= look and self.limit is None:
                self.limit = self.tree.look(self.limits)
                # Checking many processes takes long; spend at most a fifth of the time on it.
                look = time.monotonic() + max(TICK, 4 * (time.monotonic() - now))

    def _feed(self, poller: select.poll) -> None:
        try:
            self.stdin = self.stdin[os.write(self.input, self.stdin[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.stdin = self.stdin[:0]
        if not self.stdin:
            self._close_input(poller)

    def _close_input(self, poller: select.poll | None) -> None:
        if poller is not None:
            poller.unregister(self.input)
        os.close(self.input)
        self.input = -1

    def _take(self, end: int) -> bool:
        """Read the available output of one stream; return whether there may be more."""
        while True:
            try:
                part = os.read(end, _CHUNK)
            except BlockingIOError:
                return True
            if not part:
                return False
            self.taken[end] += part[: self.room]
            if len(part) > self.room:
                self.cut.add(end)
                self.limit = self.limit or "output"
                self.room = 0
                return True
            self.room -= len(part)

    def _name_quiet_limits(self) -> None:
        """Set `limit` if the command failed because of a limit that the kernel enforces by a signal or an error."""
        self.tree.reap(self.pid)
        status = self.tree.status
        if self.limit is not None or status is None or status == 0:
            return
        if os.WIFSIGNALED(status):
            named: dict[int, str] = {confine.SIGXCPU: "cpu_seconds", confine.SIGXFSZ: "file_size"}
            self.limit = named.get(os.WTERMSIG(status))
            return
        left = {**self.limits, "memory": sys.maxsize, "processes": self.limits["processes"] - 1}
        if self.tree.look(left) == "processes":
            self.limit = "processes"
        elif self._disk_is_full() and not self.full:
            self.limit = "disk"

    def _disk_is_full(self) -> bool:
        if not self.config["alone"]:
            return False
        room = os.statvfs(self.config["home"])
        return room.f_bavail * room.f_frsize < _PAGE or room.f_ffree == 0

    def _result(self, took: float) -> tuple[dict[str, Any], bytes]:
        status = self.tree.status
        code = os.waitstatus_to_exitcode(status) if status is not None else -confine.SIGKILL
        out, err = (bytes(self.taken[end]) for end in self.outputs)
        described = {
            "ok": True, "out": len(out), "cut": [end in self.cut for end in self.outputs], "limit": self.limit,
            "exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None, "seconds": took,
            "cpu_seconds": self.tree.cpu(), "peak_memory": self.tree.peak,
        }  # fmt: skip
        return described, out + err


def _become(asked: dict[str, Any], config: dict[str, Any], stdin: int, stdout: int, stderr: int) -> NoReturn:
    """Replace the forked child by the command; a failure to start is written to its standard error."""
    code = 126
    try:
        os.setsid()
        for number, end in enumerate((stdin, stdout, stderr)):
            os.dup2(end, number)
        os.closerange(3, config["files"])
        if config["counted"]:
            confine.be_the_first_to_go()
        _limit(asked["limits"], config)
        confine.default_signals(confine.SIGPIPE, confine.SIGXFSZ)
        os.chdir(absolute(config, asked["cwd"]))
        try:
            os.execvpe(asked["argv"][0], asked["argv"], asked["env"])
        except OSError:
            code = 126 if _exists(asked["argv"][0], asked["env"]) else 127
            raise
    except BaseException as error:
        why = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        os.write(2, f"{asked['argv'][0]}: {why}\n".encode("utf-8", "replace"))
    os._exit(code)


def _exists(program: str, env: dict[str, str]) -> bool:
    """Return whether a program exists.

    The error of `execvpe` does not say so: it is the same for a directory of PATH that cannot be searched and for a
    file that may not be executed.
    """
    folders = [""] if "/" in program else env.get("PATH", os.defpath).split(":")
    return any(os.path.exists(os.path.join(folder, program)) for folder in folders)


def _limit(limits: dict[str, Any], config: dict[str, Any]) -> None:
    seconds = int(limits["cpu_seconds"]) + 1
    wanted = {
        resource.RLIMIT_CPU: (seconds, seconds + 1),
        resource.RLIMIT_FSIZE: (limits["file_size"], limits["file_size"]),
        # 1 and not 0: with 0, a machine that pipes core dumps to a handler still does so.
        resource.RLIMIT_CORE: (1, 1),
        resource.RLIMIT_NOFILE: (config["files"], config["files"]),
    }
    if config["alone"]:
        wanted[resource.RLIMIT_MSGQUEUE] = (0, 0)
        wanted[resource.RLIMIT_MEMLOCK] = (65536, 65536)
    if config["address_space"]:
        wanted[resource.RLIMIT_AS] = (config["address_space"], config["address_space"])
    if config["count_tasks"]:
        wanted[resource.RLIMIT_NPROC] = (config["count_tasks"], config["count_tasks"])
    for kind, (soft, hard) in wanted.items():
        top = resource.getrlimit(kind)[1]
        if top != resource.RLIM_INFINITY:
            soft, hard = min(soft, top), min(hard, top)
        resource.setrlimit(kind, (soft, hard))


def absolute(config: dict[str, Any], path: str) -> str:
    """Return the absolute path of the directory in which a command starts.

    Raises:
        Refused: `path` leads outside the work directory.
    """
    home = os.path.realpath(config["home"])
    place = "" if "\0" in path else os.path.realpath(os.path.join(home, path))
    if place != home and not place.startswith(home + "/"):
        raise Refused(f"{path!r} is not a path below the work directory")
    return place
