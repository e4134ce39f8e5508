"""How a command starts: its streams, its limits, and, for a background command, its keeper."""

from __future__ import annotations

import errno
import os
import resource

from ludus.sandbox.inside import confine
from ludus.sandbox.inside.messages import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_TIOCSCTTY = 0x540E
_ABOVE_ALL = 4096
"""Above every descriptor of the program inside."""


class Streams:
    """The standard streams of a command that is about to start.

    Args:
        terminal: the two ends of a terminal, ours and the command's; without it there are three pipes.
    """

    def __init__(self, terminal: tuple[int, int] | None = None) -> None:
        self.terminal = terminal is not None
        if terminal is not None:
            master, slave = terminal
            self.input = os.dup(master)
            self.outputs: tuple[int, ...] = (master,)
            self.inner = (slave, slave, slave)
        else:
            ends = [os.pipe(), os.pipe(), os.pipe()]
            self.input, self.outputs = ends[0][1], (ends[1][0], ends[2][0])
            self.inner = (ends[0][0], ends[1][1], ends[2][1])
        for end in (self.input, *self.outputs):
            os.set_blocking(end, False)

    def close_inner(self) -> None:
        """Close this process's copies of the command's own ends."""
        for end in set(self.inner):
            os.close(end)

    def close(self) -> None:
        """Close our ends."""
        for end in (self.input, *self.outputs):
            os.close(end)


def start(request: dict[str, Any], config: dict[str, Any], streams: Streams) -> int:
    """Start a command as a child of this process, and return its id."""
    try:
        pid = os.fork()
        if pid == 0:
            _become(request, config, streams)
        return pid
    finally:
        streams.close_inner()


def start_with_keeper(request: dict[str, Any], config: dict[str, Any], streams: Streams) -> tuple[int, int, int, int]:
    """Start a command below a keeper.

    Returns:
        The id of the keeper, the id of the command, a pidfd of the command, and a descriptor on which the keeper
        reports, as a line of text, the command's exit status and the memory of its largest process in KiB.
    """
    status, report = os.pipe()
    waiting, go = os.pipe()
    opened = {status, report, waiting, go}
    parent = os.getpid()
    try:
        keeper = os.fork()
        if keeper == 0:
            _keep(parent, request, config, streams, report, waiting)
        for end in (report, waiting):
            os.close(end)
            opened.discard(end)
        try:
            pid = int(os.read(status, 32) or b"0")
            if pid == 0:
                raise BlockingIOError(errno.EAGAIN, "no process is left for its keeper")
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(keeper, confine.SIGKILL)
            raise
        os.write(go, b"\n")  # now the command begins, and the keeper waits for it, so that its id may be used again
        opened.discard(status)
        return keeper, pid, pidfd, status
    finally:
        streams.close_inner()
        for end in opened:
            os.close(end)


def _keep(
    parent: int, request: dict[str, Any], config: dict[str, Any], streams: Streams, report: int, waiting: int
) -> NoReturn:
    """Start the command, adopt its orphans, and report how it ended. The command may kill this process."""
    import _signal as signals  # type: ignore[import-not-found]  # `signal` would take longer to import

    try:
        confine.set_child_subreaper()
        confine.end_with_parent(parent)
        gate, opening = os.pipe()
        pid = os.fork()
        if pid == 0:
            # It begins once the program inside knows it: the command may kill the keeper at once.
            os.close(opening)
            if not os.read(gate, 1):
                os._exit(0)
            _become(request, config, streams)
        signals.pthread_sigmask(signals.SIG_BLOCK, range(1, 65))
        os.write(report, b"%d\n" % pid)
        os.read(waiting, 1)
        os.write(opening, b"\n")
        os.closerange(3, report)
        os.closerange(report + 1, _ABOVE_ALL)
        while True:
            ended, status, used = os.wait3(0)
            if ended == pid:
                os.write(report, b"%d %d\n" % (status, used.ru_maxrss))
    finally:
        os._exit(0)


def _become(request: dict[str, Any], config: dict[str, Any], streams: Streams) -> NoReturn:
    """Replace the forked child by the command; a failure to start is written to its standard error."""
    code = 126
    try:
        os.setsid()
        for number, end in enumerate(streams.inner):
            os.dup2(end, number)
        if streams.terminal:
            import fcntl  # not at the top: importing it would delay the start of every sandbox

            fcntl.ioctl(0, _TIOCSCTTY, 0)
        os.closerange(3, _ABOVE_ALL)
        if config["counted"]:
            confine.be_the_first_to_go()
        _limit(request["limits"], config)
        confine.default_signals(confine.SIGPIPE, confine.SIGXFSZ)
        os.chdir(absolute(config, request["cwd"]))
        try:
            os.execvpe(request["argv"][0], request["argv"], request["env"])
        except OSError:
            code = 126 if _exists(request["argv"][0], request["env"]) else 127
            raise
    except BaseException as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        os.write(2, f"{request['argv'][0]}: {reason}\n".encode("utf-8", "replace"))
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
    resource_limits = {
        resource.RLIMIT_CPU: (seconds, seconds + 1),
        resource.RLIMIT_FSIZE: (limits["file_size"], limits["file_size"]),
        # 1 and not 0: with 0, a machine that pipes core dumps to a handler still does so.
        resource.RLIMIT_CORE: (1, 1),
        resource.RLIMIT_NOFILE: (config["files"], config["files"]),
    }
    if config["alone"]:
        resource_limits[resource.RLIMIT_MSGQUEUE] = (0, 0)
        resource_limits[resource.RLIMIT_MEMLOCK] = (65536, 65536)
    if config["address_space"]:
        resource_limits[resource.RLIMIT_AS] = (config["address_space"], config["address_space"])
    if config["count_tasks"]:
        resource_limits[resource.RLIMIT_NPROC] = (config["count_tasks"], config["count_tasks"])
    for kind, (soft, hard) in resource_limits.items():
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
    resolved = "" if "\0" in path else os.path.realpath(os.path.join(home, path))
    if resolved != home and not resolved.startswith(home + "/"):
        raise Refused(f"{path!r} is not a path below the work directory")
    return resolved
