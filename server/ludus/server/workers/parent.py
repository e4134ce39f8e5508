"""A process's ties to the process that started it: it answers there, takes orders from there, and dies with it.

It is started by `processes.spawn`, which keeps its standard input open and writes lines of JSON to it. It answers on a
file descriptor. It dies with its parent, however that ends: the kernel kills it (on Linux), and elsewhere it notices
the end of its standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import select
import signal
import sys
import threading
from typing import Any, Final

__all__ = ["Answers", "read_orders"]


ORPHANED: Final = 70
"""The exit status of a process whose parent is gone."""

BEAT: Final = "turns"
"""The name of the number in a line that is a sign of life."""

_PR_SET_PDEATHSIG: Final = 1


class Answers:
    """What the process answers its parent.

    Args:
        descriptor: the file descriptor to write to.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, line: dict[str, object]) -> None:
        """Write a line; the parent may be gone."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, json.dumps(line).encode() + b"\n")

    def beat(self, turns: int) -> None:
        """Write a sign of life, unless the parent has not read those before.

        Args:
            turns: how many signs the event loop has given so far.
        """
        if select.select((), (self._descriptor,), (), 0)[1]:
            self.write({BEAT: turns})


def follow_parent(parent: int) -> queue.SimpleQueue[Any]:
    """Make this process die with its parent, and not with the signals of the terminal; return its orders.

    Args:
        parent: the process id of the parent.
    """
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(ORPHANED)
    return read_orders()


def read_orders() -> queue.SimpleQueue[Any]:
    """Return the lines of JSON that arrive on standard input; this process ends when that is closed."""
    stream = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # environments may read standard input
    os.close(nothing)
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen_to_parent() -> None:
        for line in stream:
            orders.put(json.loads(line))
        os._exit(ORPHANED)

    threading.Thread(target=listen_to_parent, daemon=True, name="ludus-parent").start()
    return orders
