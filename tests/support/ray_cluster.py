"""A Ray cluster of several nodes on this machine, in a process of its own; it ends with the tests."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from waiting import is_running

PROGRAM = """
import json, sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": int(sys.argv[1]), "include_dashboard": False})

def say(node):
    print(json.dumps({"raylet": node.all_processes["raylet"][0].process.pid, "address": cluster.address}), flush=True)

say(cluster.head_node)
for line in sys.stdin:
    if line == "stop\\n":
        cluster.head_node.kill_gcs_server()
        print("{}", flush=True)
    elif line == "start\\n":
        cluster.head_node.start_gcs_server()
        print("{}", flush=True)
    else:
        say(cluster.add_node(num_cpus=int(line)))
cluster.shutdown()
"""


class RayCluster:
    """A cluster, whose nodes can be added and killed.

    Args:
        cpus: the CPUs of its head.
        redis: the address of a Redis server that keeps the cluster's state; None to keep it in the head.
    """

    def __init__(self, cpus: int, redis: str | None = None) -> None:
        store = {"RAY_REDIS_ADDRESS": redis} if redis is not None else {}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, str(cpus)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, **self.variables, **store}, start_new_session=True,
        )  # fmt: skip
        said = self._read()
        self.address: str = said["address"]
        self.raylets: list[int] = [said["raylet"]]

    variables = {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
    }  # fmt: skip
    """What its nodes and drivers have in their environments."""

    def add(self, cpus: int) -> int:
        """Add a node, and return the process id of its raylet."""
        self.raylets.append(self._ask(str(cpus))["raylet"])
        return self.raylets[-1]

    def stop_state(self) -> None:
        """End the process that holds the cluster's state."""
        self._ask("stop")

    def start_state(self) -> None:
        """Start it again, with the state that Redis has."""
        self._ask("start")

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        return self._read()

    def lose_head(self) -> None:
        """Kill the processes of the head, which hold the cluster's state."""
        for pid in descendants(self._process.pid):
            if b"gcs_server" in command_of(pid):
                os.kill(pid, signal.SIGKILL)
        os.kill(self.raylets[0], signal.SIGKILL)

    def close(self) -> None:
        """End the cluster."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pids = descendants(self._process.pid)
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith(b"{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise AssertionError("the Ray cluster did not start")


def parent_of(pid: int) -> int:
    """The process id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command_of(pid: int) -> bytes:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""

    def below(parent: int) -> Iterator[int]:
        for file in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                for child in map(int, file.read_text().split()):
                    yield child
                    yield from below(child)

    return [one for one in below(pid) if is_running(one)]
