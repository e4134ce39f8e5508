"""Ports of this machine that nothing uses now, for programs that cannot say which port they got when asked for 0.

A port that the kernel has chosen can go to any other socket of the machine as soon as it is closed. These ports are
below those that the kernel chooses from, and each process begins to look at another one.
"""

from __future__ import annotations

import itertools
import os
import socket
from typing import Final

_PORTS: Final = range(10_000, 32_000)
_numbers = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """Return a port of loopback that no call of this process has returned for a long time."""
    for number in itertools.islice(_numbers, len(_PORTS)):
        port = _PORTS[number % len(_PORTS)]
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("every port is in use")


def free_ports(number: int) -> list[int]:
    """Return so many different ports of loopback."""
    return [free_port() for _ in range(number)]
