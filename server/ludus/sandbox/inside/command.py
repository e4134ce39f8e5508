"""The commands of a sandbox: `Run` collects its output until it ends, `Background` streams while others work.

How this works:

- A command is started by `start`. From then on the program's loop calls it: `take` when one of its streams is readable,
  `feed` when its input is writable, `look` every so often with what its processes use. Each of these may end it.
- A `Run` keeps its output, up to the limit, and answers the request that started it when it has ended. There is one at
  a time. Some limits make system calls fail, or end the process by a signal, before `look` notices. After a failed
  command, `_name_quiet_limits` finds out whether it reached one of those.
- A `Background` sends its output as it comes, in events. The server grants each stream a number of bytes (`window`) and
  grants more as they are read, so a command that writes faster than anyone reads waits, as at a full pipe. Input works
  the same way: an event reports how many bytes the command has taken.
- When the first process of a command has ended, all others that it started are ended, and what is left in its streams
  is read.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time

from ludus.sandbox.inside import confine
from ludus.sandbox.inside.messages import NoRoom, send
from ludus.sandbox.inside.processes import PAGE, RUN, Account, Usages
from ludus.sandbox.inside.start import Streams, start, start_with_keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ludus.sandbox.inside.loop import Loop

_CHUNK = 65536
_TIOCSWINSZ, _TIOCSPTLCK, _TIOCGPTPEER = 0x5414, 0x40045431, 0x5441
_REPORT_SECONDS = 0.5
"""How long a keeper may take to report how its command ended."""
NO_ROOM = {errno.EAGAIN: "processes", errno.ENOMEM: "memory"}
"""Errors of starting a process that other commands of the sandbox can cause, and the limit that they mean."""


class Command:
    """What both kinds have in common: the limits, the account, and the end of the first process."""

    keeper: int = RUN
    limit: str | None
    status: int | None
    pid: int

    def __init__(self, request: dict[str, Any], loop: Loop) -> None:
        self.request = request
        self.limits = request["limits"]
        self.loop = loop
        self.config = loop.config
        config = self.config
        shared = bool(loop.background)
        metered = self.keeper == RUN and config["meter"] >= 0
        self.account = Account(
            config["meter"] if metered else -1, config["alone"] and not config["counted"], config["tcp"]
        )
        self.full = self._disk_is_full() if not shared else False
        self.began = time.monotonic()
        self.pid = 0
        self.status = None
        self.limit = None
        self.streams: Streams

    def seconds_left(self, now: float) -> float:
        """Return how long the command may still run."""
        return float(self.began + self.limits["seconds"] - now)

    def look(self, usages: Usages, now: float) -> str | None:
        """Record what the processes use, and return the limit that they exceed, or None."""
        if self.seconds_left(now) <= 0:
            return "seconds"
        self.account.note(usages, self.config["alone"])
        return self.account.exceeded(self.limits, self.keeper, self.loop.shared)

    def finish(self) -> None:
        """End all processes of the command, and report how it ended."""
        raise NotImplementedError

    def _disk_is_full(self) -> bool:
        if not self.config["alone"]:
            return False
        rooms = [os.statvfs(path) for path in self.config.get("disks", (self.config["home"],))]
        return any(room.f_bavail * room.f_frsize < PAGE or room.f_ffree == 0 for room in rooms)

    def _name_quiet_limits(self) -> None:
        """Set `limit` if the command failed because of a limit that the kernel enforces by a signal or an error."""
        status = self.status
        if self.limit is not None or status is None or status == 0:
            return
        if os.WIFSIGNALED(status):
            named: dict[int, str] = {confine.SIGXCPU: "cpu_seconds", confine.SIGXFSZ: "file_size"}
            self.limit = named.get(os.WTERMSIG(status))
            return
        limits = {**self.limits, "memory": sys.maxsize, "processes": self.limits["processes"] - 1}
        self.account.note(self.loop.census.take().get(self.keeper, {}), self.config["alone"])
        if self.account.exceeded(limits, self.keeper, self.loop.shared) == "processes":
            self.limit = "processes"
        elif self._disk_is_full() and not self.full:
            self.limit = "disk"

    def _ending(self, took: float) -> dict[str, Any]:
        status = self.status
        code = os.waitstatus_to_exitcode(status) if status is not None else -confine.SIGKILL
        return {
            "limit": self.limit, "exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None,
            "seconds": took, "cpu_seconds": self.account.cpu(), "peak_memory": self.account.peak,
        }  # fmt: skip


class Run(Command):
    """A command that is carried out to its end, and whose output is its reply."""

    limit: str | None

    def __init__(self, request: dict[str, Any], stdin: bytes, loop: Loop) -> None:
        super().__init__(request, loop)
        self.stdin = memoryview(stdin)
        self.room = self.limits["output"]
        self.taken: dict[int, bytearray] = {}
        self.cut: set[int] = set()
        self.others = loop.used_by_others()

    def start(self) -> None:
        """Start the command and report to the server that it has started, so that the server starts its own clock."""
        self.streams = Streams()
        self.taken = {end: bytearray() for end in self.streams.outputs}
        self.pidfd = -1
        try:
            self.pid = start(self.request, self.config, self.streams)
            self.pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            if error.errno not in NO_ROOM or not self.loop.background:
                self.streams.close()
                raise
            self.limit = NO_ROOM[error.errno]
            self.finish()
            return
        send(self.loop.control, {"id": self.request["id"], "more": True, "began": True})
        for end in self.streams.outputs:
            self.loop.watch(end, select.POLLIN, self._take)
        self.loop.watch(self.pidfd, select.POLLIN, lambda _: self.finish())
        if self.stdin:
            self.loop.watch(self.streams.input, select.POLLOUT, self._feed)
        else:
            self._close_input()

    def _feed(self, end: int) -> None:
        try:
            self.stdin = self.stdin[os.write(end, self.stdin[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.stdin = self.stdin[:0]
        if not self.stdin:
            self._close_input()

    def _close_input(self) -> None:
        self.loop.forget(self.streams.input)
        os.close(self.streams.input)
        self.streams.input = -1

    def _take(self, end: int) -> None:
        """Read the available output of one stream."""
        while True:
            try:
                part = os.read(end, _CHUNK)
            except BlockingIOError:
                return
            if not part:
                self.loop.forget(end)
                return
            self.taken[end] += part[: self.room]
            if len(part) > self.room:
                self.cut.add(end)
                self.limit = self.limit or "output"
                self.room = 0
                return
            self.room -= len(part)

    def look(self, usages: Usages, now: float) -> str | None:
        """See `Command.look`."""
        self.account.others = self.loop.used_by_others() - self.others
        return super().look(usages, now)

    def finish(self) -> None:
        """End all processes of the command, read what is left of its output, and send the reply."""
        took = time.monotonic() - self.began
        loop = self.loop
        loop.reap(False)
        try:
            if self.pid:
                self._name_quiet_limits()
        finally:
            loop.end_run()
            self.account.note({}, self.config["alone"])
            for end in self.streams.outputs:
                self._take(end)
            for end in (self.pidfd, self.streams.input, *self.streams.outputs):
                if end >= 0:
                    loop.forget(end)
                    os.close(end)
        self.account.others = loop.used_by_others() - self.others
        out, err = (bytes(self.taken[end]) for end in self.streams.outputs)
        cut = [end in self.cut for end in self.streams.outputs]
        described = {"id": self.request["id"], "ok": True, "out": len(out), "cut": cut, **self._ending(took)}
        send(loop.control, described, out + err)


class Background(Command):
    """A command that runs until it ends or is ended, with its streams open meanwhile.

    Args:
        terminal: the two ends of the terminal that it runs on; None for pipes.
    """

    limit: str | None

    def __init__(self, request: dict[str, Any], loop: Loop, terminal: tuple[int, int] | None) -> None:
        self.keeper = -1
        super().__init__(request, loop)
        self.number = request["id"]
        self.room = self.limits["output"]
        self.stdin = bytearray()
        self.closes_input = False
        self.ended = False
        self.exited: float | None = None
        """When the first process ended; None while it runs."""
        self.streams = Streams(terminal)
        self.window = {end: request["window"] for end in self.streams.outputs}
        """The bytes that may still be sent of each stream that is open."""
        try:
            self.keeper, self.pid, self.pidfd, self.report = start_with_keeper(request, self.config, self.streams)
        except OSError as error:
            self.streams.close()
            if error.errno not in NO_ROOM:
                raise
            raise NoRoom(f"the sandbox has reached its limit on {NO_ROOM[error.errno]}: end a process first") from None
        os.set_blocking(self.report, False)
        loop.watch(self.report, select.POLLIN, self._hear)
        loop.watch(self.pidfd, select.POLLIN, self._note_exit)
        for end in self.streams.outputs:
            loop.watch(end, select.POLLIN, self._take)

    # ── output ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def grant(self, stream: int, size: int) -> None:
        """Allow `size` more bytes of one stream to be sent: 0 is standard output, 1 standard error."""
        end = self.streams.outputs[stream]
        if end not in self.window:
            return
        self.window[end] += size
        if self.ended:
            self._take(end)
        else:
            self.loop.watch(end, select.POLLIN, self._take)

    def _take(self, end: int) -> None:
        """Read the available output of one stream, as much as the server has granted."""
        while room := self.window.get(end, 0):
            try:
                part = os.read(end, min(room, _CHUNK))
            except BlockingIOError:
                if self.ended:
                    self._end_stream(end)
                return
            except OSError as error:
                if error.errno != errno.EIO:  # nothing has the terminal open any more
                    raise
                part = b""
            if not part:
                self._end_stream(end)
                return
            self._pass_on(end, part)
            if self.limit == "output" and not self.ended:
                self.finish()
                return
        self.loop.forget(end)  # until more is granted

    def _pass_on(self, end: int, part: bytes) -> None:
        accepted = part[: self.room]
        self.room -= len(accepted)
        self.window[end] -= len(accepted)
        if len(accepted) < len(part):
            self.limit = self.limit or "output"
        if accepted:
            self._emit({"stream": self.streams.outputs.index(end)}, accepted)

    def _end_stream(self, end: int) -> None:
        self._close(end)
        if self.window.pop(end, None) is not None:
            self._emit({"stream": self.streams.outputs.index(end), "eof": True})
        self._leave_if_done()

    def _emit(self, event: dict[str, Any], blob: bytes = b"") -> None:
        send(self.loop.control, {"job": self.number, **event}, blob)

    # ── input ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, data: bytes, eof: bool) -> None:
        """Add to the input of the command; with `eof` it is closed once the command has taken it."""
        if self.streams.input < 0:
            self._emit({"refuses": True})
            return
        self.stdin += data
        self.closes_input = self.closes_input or eof
        self._feed(self.streams.input)

    def _feed(self, end: int) -> None:
        wrote = 0
        try:
            while self.stdin:
                size = os.write(end, self.stdin[:_CHUNK])
                del self.stdin[:size]
                wrote += size
        except BlockingIOError:
            pass
        except OSError:  # the command has closed its input, or its terminal
            self.stdin.clear()
            self._emit({"refuses": True})
            self._close_input()
            return
        if wrote:
            self._emit({"wrote": wrote})
        if self.stdin:
            self.loop.watch(end, select.POLLOUT, self._feed)
        elif self.closes_input:
            self._close_input()
        else:
            self.loop.forget(end)

    def _close_input(self) -> None:
        end, self.streams.input = self.streams.input, -1
        if end >= 0:
            self._close(end)

    # ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

    def signal(self, number: int, group: bool) -> None:
        """Send a signal to the command's first process, or to its process group; do nothing if it has ended."""
        import _signal as signals  # type: ignore[import-not-found]  # `signal` would take longer to import

        if self.ended:
            return
        try:
            signals.pidfd_send_signal(self.pidfd, number)
            if group:
                os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal; its programs are notified."""
        end = self.streams.outputs[0]
        if self.streams.terminal and end in self.window:
            set_size(end, rows, columns)

    def _note_exit(self, pidfd: int) -> None:
        """Note that the first process has ended; its keeper reports how, unless a command has stopped it."""
        self.loop.forget(pidfd)
        self.exited = time.monotonic()

    def look(self, usages: Usages, now: float) -> str | None:
        """See `Command.look`."""
        if self.exited is not None and now > self.exited + _REPORT_SECONDS:
            self.finish()
            return None
        return super().look(usages, now)

    def _hear(self, report: int) -> None:
        """Read how the command ended from its keeper; an end of file means that the keeper was killed."""
        try:
            report_words = os.read(report, 64).split()
        except BlockingIOError:
            return
        if report_words:
            self.status = int(report_words[0])
            self.account.peak = max(self.account.peak, int(report_words[1]) * 1024)
        self.finish()

    def finish(self) -> None:
        """End all processes of the command, and report how it ended. What is left of its output is still read."""
        if self.ended:
            return
        self.ended = True
        took = time.monotonic() - self.began
        self._name_quiet_limits()
        self.loop.dismiss(self)
        for end in (self.report, self.pidfd):
            self._close(end)
        self._close_input()
        self._emit({"ended": self._ending(took)})
        for end in tuple(self.window):
            self.loop.forget(end)
            self._take(end)

    def abandon(self) -> None:
        """End the command if it still runs, and close its streams even if output is left."""
        self.finish()
        for end in tuple(self.window):
            del self.window[end]
            self._close(end)
        self._leave_if_done()

    def _close(self, end: int) -> None:
        self.loop.forget(end)
        os.close(end)

    def _leave_if_done(self) -> None:
        if self.ended and not self.window:
            self.loop.background.pop(self.number, None)


def set_size(end: int, rows: int, columns: int) -> None:
    """Set the size of a terminal."""
    import fcntl  # not at the top: importing it would delay the start of every sandbox

    fcntl.ioctl(end, _TIOCSWINSZ, rows.to_bytes(2, sys.byteorder) + columns.to_bytes(2, sys.byteorder) + bytes(4))


def open_terminal() -> tuple[int, int]:
    """Create a terminal of the sandbox's own, and return its two ends.

    Raises:
        NoRoom: commands have opened as many as there may be.
    """
    import fcntl

    try:
        master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise NoRoom("commands have opened all terminals of the sandbox: end one first") from None
    try:
        fcntl.ioctl(master, _TIOCSPTLCK, bytes(4))
        slave = fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except BaseException:
        os.close(master)
        raise
    return master, slave
