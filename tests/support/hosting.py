"""A real `ludus sandboxd` in a process of its own."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ludus.sandbox.cgroups import Groups
from ludus.sandbox.core.stale import owner_of

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


@contextmanager
def network_namespace() -> Iterator[tuple[list[str], str]]:
    """A second network on this machine: the command that enters it, and its address; a skip where that takes rights."""
    if os.geteuid() != 0:
        pytest.skip("a network namespace that this one can reach needs root")
    for program in ("ip", "nsenter"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt-get install iproute2 util-linux)")
    mark = os.getpid() % 65536
    name, outer, inner = f"ludus-test-{mark}", f"ltest{mark}a", f"ltest{mark}b"
    network = f"10.{200 + mark % 50}.{mark // 256}"
    commands = [
        f"ip netns add {name}", f"ip link add {outer} type veth peer name {inner} netns {name}",
        f"ip addr add {network}.1/24 dev {outer}", f"ip link set {outer} up",
        f"ip -n {name} addr add {network}.2/24 dev {inner}", f"ip -n {name} link set {inner} up",
        f"ip -n {name} link set lo up",
    ]  # fmt: skip
    try:
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"this machine lets us make no network namespace: {command}: {done.stderr.strip()}")
        yield ["nsenter", f"--net=/run/netns/{name}"], f"{network}.2"
    finally:
        subprocess.run(["ip", "link", "del", outer], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
