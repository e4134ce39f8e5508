"""Sandboxes under test: small limits, the backends that this machine has, and what a closed box must not leave."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from engine import IMAGE

from ludus.sandbox import Limits, SandboxProvider, SandboxSettings, SandboxUnavailable, find_provider
from ludus.sandbox.bubblewrap import Bubblewrap
from ludus.sandbox.cgroups import Groups
from ludus.sandbox.core.stale import OWNER
from ludus.sandbox.local import UnsafeLocal

MIB = 1024 * 1024

TIGHT = Limits(
    seconds=30, cpu_seconds=4, memory=96 * MIB, processes=24, file_size=8 * MIB, disk=24 * MIB, output=64 * 1024
)
"""Small, so that attacks on them end soon; except for `seconds`, which only a hang meets, on however slow a machine."""


NEEDS_BUBBLEWRAP = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


async def opened(kind: str) -> SandboxProvider:
    """An open provider, or a skip with the reason why there is none."""
    if sys.platform != "linux":
        pytest.skip(f"{kind} needs Linux")
    provider: SandboxProvider
    if kind == "unsafe-local":
        provider = UnsafeLocal()
    elif kind in ("docker", "sandboxd"):
        provider = find_provider(kind)
    elif kind.startswith("podman"):
        from ludus.sandbox.podman import Podman  # an extra

        provider = Podman(runs_program=not kind.endswith("-shell"))
    elif kind == "docker-shell":
        from ludus.sandbox.docker import Docker  # an extra

        provider = Docker(runs_program=False)
    elif kind == "bubblewrap":
        if Groups.find() is None:
            pytest.skip("this machine lets us make no control groups; bubblewrap-rlimits runs the same tests")
        provider = Bubblewrap()
    else:
        provider = Bubblewrap(cgroups=False)
    try:
        await provider.open()
    except SandboxUnavailable as error:
        pytest.skip(error.message)
    return provider


def settings_of(kind: str, limits: Limits = TIGHT, *, warm: int = 0) -> SandboxSettings:
    image = IMAGE if kind.startswith("docker") else f"localhost/{IMAGE}" if kind.startswith("podman") else None
    provider = kind.removesuffix("-rlimits").removesuffix("-shell")
    return SandboxSettings(provider=provider, limits=limits, image=image, warm=warm)


def command_runs(*argv: str) -> bool:
    """Return whether such a command runs in any box of this machine."""
    for entry in Path("/proc").iterdir():
        try:
            if (entry / "cmdline").read_bytes() == b"".join(word.encode() + b"\0" for word in argv):
                return True
        except OSError:
            continue
    return False


def leftovers(owner: str = OWNER) -> list[str]:
    """What a closed box should not have left: processes inside boxes of a server, groups, directories."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            except OSError:
                continue
            if words[-1].decode("utf-8", "replace") == owner:
                found.append(f"process {entry.name}")
    return found + remains(owner)


def remains(owner: str) -> list[str]:
    """What a server has left on the machine except processes: control groups, directories."""
    # Not by glob, which fails when others remove their groups while it looks.
    groups = [os.path.join(above, name) for above, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    places = [group for group in groups if os.path.basename(group).startswith(f"{owner}-")]
    return places + [str(place) for place in Path(tempfile.gettempdir()).glob(f"{owner}-*")]
