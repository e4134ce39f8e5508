"""The program inside a sandbox: it waits for requests on a socket and carries them out.

It is process 1 of the sandbox's own process namespace, so that commands cannot send signals to it, and it is not
dumpable, so that they cannot inspect it. When the socket closes, everything in the sandbox ends.
"""

from __future__ import annotations

import errno
import os

from ludus.sandbox.inside import confine, files
from ludus.sandbox.inside.command import Background, Run, open_terminal, set_size
from ludus.sandbox.inside.dialing import Dials
from ludus.sandbox.inside.loop import Loop
from ludus.sandbox.inside.messages import (
    Incoming,
    NoRoom,
    Outgoing,
    Refused,
    open_passing,
    receive,
    receive_descriptors,
    send,
)
from ludus.sandbox.inside.processes import RUN, Census
from ludus.sandbox.inside.start import absolute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


OF_FILES = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ENOSPC,
    errno.EDQUOT, errno.EFBIG, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EXDEV, errno.EMLINK, errno.EROFS,
    errno.ETXTBSY,
}  # fmt: skip
"""Errors that commands can cause with their own files. Any other error means that the sandbox failed."""


class Runner:
    """Carries out the requests of the server.

    Args:
        control: the socket to the server.
        config: the configuration of the sandbox, the server's first request.
    """

    def __init__(self, control: int, config: dict[str, Any]) -> None:
        self._control = control
        self._config = config
        self.loop = Loop(control, config, self._hear)
        self._dials = Dials(self.loop)

    def _hear(self, control: int) -> None:
        """Read one request and carry it out; an end of the socket ends the loop."""
        message = receive(control)
        if message is None:
            self.loop.open = False
            return
        request, blob = message
        try:
            if "job" in request:
                self._tend(request, blob)
            else:
                self._answer(request, blob)
        except Refused as error:
            self._reply(request, error=str(error))
        except NoRoom as error:
            self._reply(request, limit=str(error))
        except Exception as error:
            key = "error" if isinstance(error, OSError) and error.errno in OF_FILES else "failed"
            self._reply(request, **{key: f"{type(error).__name__}: {error}"})
        blob.skip()

    def _reply(self, request: dict[str, Any], **reply: Any) -> None:
        send(self._control, {"id": request.get("id", 0), **reply})

    def _answer(self, request: dict[str, Any], blob: Incoming) -> None:
        """Carry out one request.

        Raises:
            Refused: it cannot be carried out.
        """
        op, config = request["op"], self._config
        if op == "cancel":
            if self.loop.run is not None:
                self.loop.run.finish()
            return
        if op == "meter":
            config["meter"] = receive_descriptors(config["passing"], 1)[0]
            self._reply(request, ok=True)
            return
        os.chmod(config["home"], 0o700)
        outgoing = Outgoing(self._control, request["id"])
        if op == "run":
            self._check_folder(request)
            self.loop.begin(Run(request, blob.rest(), self.loop))
            return
        if op == "spawn":
            self._spawn(request)
        elif op == "connect":
            self._dials.dial(request)
            return
        elif op == "read":
            files.read_file(config, request, outgoing)
        elif op == "write":
            files.write_file(config, request, blob)
        elif op == "list":
            self._reply(request, ok=True, entries=files.list_files(config, request))
            return
        elif op in ("snapshot", "restore"):
            # Paused, so that the copy is of one moment, and no path can change between a check and its use.
            paused = self.loop.census.pause()
            try:
                if op == "snapshot":
                    files.snapshot(config, outgoing)
                else:
                    files.restore(config, blob)
            finally:
                self.loop.census.resume(paused)
        else:
            raise Refused(f"unknown operation {op!r}")
        self._reply(request, ok=True)

    def _check_folder(self, request: dict[str, Any]) -> None:
        if not os.path.isdir(absolute(self._config, request["cwd"])):
            raise Refused(f"there is no directory {request['cwd']!r}")

    def _spawn(self, request: dict[str, Any]) -> None:
        terminal, size = None, request["terminal"]
        if size is not None:
            terminal = open_terminal() if self._config["terminals"] else self._receive_terminal()
        try:
            self._check_folder(request)
            if terminal is not None and size is not None:
                set_size(terminal[0], *size)
        except BaseException:
            if terminal is not None:
                for end in terminal:
                    os.close(end)
            raise
        self.loop.add(Background(request, self.loop, terminal))

    def _receive_terminal(self) -> tuple[int, int]:
        """Receive a terminal of the machine from the server, where the sandbox has none of its own."""
        master, slave = receive_descriptors(self._config["passing"], 2)
        return master, slave

    def _tend(self, request: dict[str, Any], blob: Incoming) -> None:
        """Carry out a request about a background command, which may have ended."""
        op, job = request["op"], self.loop.background.get(request["job"])
        if job is None:
            return
        if op == "input":
            job.write(blob.rest(), request["eof"])
        elif op == "grant":
            job.grant(request["stream"], request["size"])
        elif op == "signal":
            job.signal(request["number"], request["group"])
        elif op == "resize":
            job.resize(request["rows"], request["columns"])
        elif op == "kill":
            job.finish()
        elif op == "abandon":
            job.abandon()
        else:
            raise Refused(f"unknown operation {op!r}")


def main(control: int) -> None:
    """Confine this process, then carry out requests until the server closes the socket.

    This package imports as few modules as possible, because every import delays the start of every sandbox.
    """
    os.set_inheritable(control, False)
    configuration = receive(control)
    if configuration is None:
        return
    config = configuration[0]
    os.umask(0o022)
    confine.default_signals(confine.SIGINT)
    try:
        if config.get("socket"):
            config["passing"] = open_passing(config["socket"])
    except OSError as error:
        send(control, {"id": config["id"], "unfit": str(error)})
        return
    os.set_inheritable(config["passing"], False)
    try:
        if config.get("prepared"):
            if config["address"] is not None:
                confine.open_listener(config["passing"], config["address"])
            confine.close_up(config)
        elif config["alone"]:
            confine.make_disk(config)
            confine.drop_privileges(config)
            if config["address"] is not None:
                confine.open_listener(config["passing"], config["address"])
        else:
            confine.set_child_subreaper()
    except OSError as error:
        send(control, {"id": configuration[0]["id"], "error": str(error)})
        return
    nowhere = os.open("/dev/null", os.O_RDWR)
    for end in range(3):
        os.dup2(nowhere, end)
    send(control, {"id": configuration[0]["id"], "ok": True})
    try:
        Runner(control, config).loop.serve()
    except ConnectionError:
        pass
    finally:
        if not config["alone"]:
            Census(False, lambda _: _reap()).end(RUN)
            try:
                files.clear(config["home"])
                os.rmdir(config["home"])
            except OSError:
                pass


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
