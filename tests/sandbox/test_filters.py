"""The filter of a server that is an ordinary user, whose boxes are, to the kernel, the server's own user."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from ludus.sandbox import Limits, filters
from ludus.sandbox.bubblewrap import _open_files

BEHIND = """
import ctypes, errno, sys
from ludus.sandbox.inside import confine
confine._prctl(38, 1)
confine.install_filter(bytes.fromhex(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
print("made" if libc.inotify_init1(0) >= 0 else errno.errorcode[ctypes.get_errno()])
"""


@pytest.mark.skipif(not filters.supported(), reason=f"there is no filter for {platform.machine()}")
@pytest.mark.parametrize(("own_user", "said"), [(True, "made"), (False, "ENOSYS")])
def test_inotify_is_there_for_boxes_with_a_user_of_their_own(own_user: bool, said: str) -> None:
    program = filters.assemble(counted=True, own_user=own_user, network=False).hex()
    ran = subprocess.run([sys.executable, "-c", BEHIND, program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == said


@pytest.mark.parametrize("processes", [8, 64, 256])
def test_one_box_of_the_servers_user_cannot_watch_all_that_the_user_may(
    monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    with open("/proc/sys/fs/epoll/max_user_watches", encoding="ascii") as file:
        allowed = int(file.read())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    files = _open_files(Limits(processes=processes), counted=True)
    assert files == 64 or (files / 2) ** 2 * processes <= allowed / 16


def test_a_box_that_nothing_counts_holds_fewer_descriptors() -> None:
    limits = Limits()
    assert _open_files(limits, counted=False) < _open_files(limits, counted=True)
