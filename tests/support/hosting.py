"""A real `ludus sandboxd` in a process of its own."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ludus.sandbox.cgroups import Groups
from ludus.sandbox.stale import owner_of

TOKEN = "the-token-of-these-tests"


class SandboxHost:
    """A `ludus sandboxd` process."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url
        self.owner = owner_of(process.pid)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def sandboxd(
    folder: Path, *options: str, prefix: Sequence[str] = (), log: str = "sandboxd.log", port: int = 0
) -> Iterator[SandboxHost]:
    """A host with a token, whose log is a file in the folder; a skip where bubblewrap has no control groups.

    Args:
        folder: where it writes.
        options: further ones of the command.
        prefix: a command that runs the host.
        log: the name of its log.
        port: where it listens; 0 takes a free port.
    """
    if sys.platform != "linux":
        pytest.skip("sandboxd needs Linux here")
    if Groups.find() is None:
        pytest.skip("this machine lets us make no control groups")
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    command = [
        *prefix, sys.executable, "-m", "ludus.cli", "sandboxd", "--port", str(port), "--token-file", str(token),
        "--readonly", str(folder.parent), *options,
    ]  # fmt: skip
    with (folder / log).open("ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        line = b""
        while b" at ws" not in line:
            assert select.select([process.stdout], [], [], 60)[0], "the host did not start"
            line = process.stdout.readline()
            assert line, f"the host did not start: {(folder / log).read_text(encoding='utf-8')[-500:]}"
        yield SandboxHost(process, line.decode().split(" at ")[1].strip())
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()


def hosts_in(environment: pytest.MonkeyPatch, *hosts: SandboxHost) -> None:
    """Name hosts to the backend `sandboxd`."""
    environment.setenv("LUDUS_SANDBOXD", ",".join(host.url for host in hosts))
    environment.setenv("LUDUS_SANDBOXD_TOKEN", TOKEN)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += [int(one) for one in (thread / "children").read_text(encoding="utf-8").split()]
    return found


def is_root() -> bool:
    return os.geteuid() == 0
