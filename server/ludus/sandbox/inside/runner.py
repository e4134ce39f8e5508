"""The main loop of the program inside a sandbox: it waits on a socket and carries out one request after another.

It is process 1 of the sandbox's own process namespace, so that commands cannot send signals to it, and it is not
dumpable, so that they cannot inspect it. When the socket closes, everything in the sandbox ends.
"""

from __future__ import annotations

import errno
import os

from ludus.sandbox.inside import confine, files
from ludus.sandbox.inside.command import Command, Tree, absolute
from ludus.sandbox.inside.messages import Incoming, Outgoing, Refused, receive, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


OF_FILES = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ENOSPC,
    errno.EDQUOT, errno.EFBIG, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EXDEV, errno.EMLINK, errno.EROFS,
    errno.ETXTBSY,
}  # fmt: skip
"""Errors that commands can cause with their own files. Any other error means that the sandbox failed."""


def answer(control: int, config: dict[str, Any], asked: dict[str, Any], blob: Incoming) -> None:
    """Carry out one request and send its reply.

    Raises:
        Refused: it cannot be carried out.
    """
    op = asked["op"]
    if op == "cancel":
        return
    os.chmod(config["home"], 0o700)
    if op == "run":
        if not os.path.isdir(absolute(config, asked["cwd"])):
            raise Refused(f"there is no directory {asked['cwd']!r}")
        command = Command(asked, blob.rest(), config, control)
        reply, output = command.run()
        send(control, reply, output)
    elif op == "read":
        files.read_file(config, asked, Outgoing(control))
        send(control, {"ok": True})
    elif op == "write":
        files.write_file(config, asked, blob)
        send(control, {"ok": True})
    elif op == "list":
        send(control, {"ok": True, "entries": files.list_files(config, asked)})
    elif op == "snapshot":
        files.snapshot(config, Outgoing(control))
        send(control, {"ok": True})
    elif op == "restore":
        files.restore(config, blob)
        send(control, {"ok": True})
    else:
        raise Refused(f"unknown operation {op!r}")


def main(control: int) -> None:
    """Confine this process, then carry out requests until the server closes the socket.

    This package imports as few modules as possible, because every import delays the start of every sandbox.
    """
    os.set_inheritable(control, False)
    first = receive(control)
    if first is None:
        return
    config = first[0]
    os.umask(0o022)
    confine.default_signals(confine.SIGINT)
    try:
        if config["alone"]:
            confine.make_disk(config)
            confine.drop_privileges(config)
            if config["handoff"] >= 0:
                confine.open_listener(config["handoff"], config["address"])
        else:
            confine.set_child_subreaper()
    except OSError as error:
        send(control, {"error": str(error)})
        return
    nowhere = os.open("/dev/null", os.O_RDWR)
    for end in range(3):
        os.dup2(nowhere, end)
    send(control, {"ok": True})
    try:
        while (message := receive(control)) is not None:
            try:
                answer(control, config, *message)
            except Refused as error:
                send(control, {"error": str(error)})
            except Exception as error:
                key = "error" if isinstance(error, OSError) and error.errno in OF_FILES else "failed"
                send(control, {key: f"{type(error).__name__}: {error}"})
            message[1].skip()
    except (ConnectionError, BrokenPipeError):
        pass
    finally:
        if not config["alone"]:
            Tree(alone=False).kill(0)
            try:
                files.clear(config["home"])
                os.rmdir(config["home"])
            except OSError:
                pass
