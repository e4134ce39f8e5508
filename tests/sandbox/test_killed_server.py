"""kill -9 of a real `ludus serve` with boxes in every state: nothing outlives it, and the next server finds nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from engine import IMAGE
from origins import origin, silent
from sandboxing import opened, remains
from serving import Served, served
from waiting import wait_until

from ludus.client import connect
from ludus.sandbox.core.stale import is_alive, kill_stale_processes

WORLD = """
import os

from ludus.server import Environment, Task, tool
from ludus.sandbox import Limits, SandboxSettings


class Coding(Environment[Task]):
    splits = {"train": [Task(id="one")]}
    sandbox_settings = SandboxSettings(
        provider=os.environ["BACKEND"], image=os.environ.get("IMAGE"), warm=2, network=(os.environ["ALLOWED"],),
        limits=Limits(seconds=600, processes=16, memory=96 * 2**20, disk=16 * 2**20),
    )
    verifier_sandbox = "separate"

    def prompt(self) -> str:
        return "Run commands."

    @tool
    async def shell(self, command: str) -> str:
        '''Run a command.'''
        return (await self.sandbox.run(["sh", "-c", command])).text

    async def grade(self, answer: str) -> float:
        async with self.verifier() as box:
            return float((await box.run(["sh", "-c", answer])).ok)
"""

MARK = str(1_000_000 + os.getpid())
"""Seconds to sleep, by which the processes of this run's boxes are known."""
TUNNEL = (
    "import os, socket, time; s = socket.create_connection(('127.0.0.1', 3128)); "
    "s.sendall(('CONNECT ' + os.environ['ALLOWED'] + ' HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n').encode()); s.recv(99); "
    f"time.sleep({MARK})"
)
COMMANDS = {
    "daemons": f"setsid sleep {MARK} & (trap '' HUP INT TERM; exec setsid sleep {MARK}) & sleep {MARK}",
    "stopped": f"sleep {MARK} & kill -STOP $$",
}
SLEEPERS = 3 + 1 + 1 + 1
"""In both boxes above, the one with a tunnel, and the verifier's."""


def processes(wanted: Callable[[list[bytes]], bool]) -> set[int]:
    """The processes of this machine whose command lines are wanted."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted((entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")):
                    found.add(int(entry.name))
    return found


def sleepers() -> set[int]:
    return processes(lambda words: words == [b"sleep", MARK.encode()] or TUNNEL.encode() in words and words[0] != b"sh")


def boxes_of(owner: str) -> set[int]:
    """The programs inside boxes of a server, and bubblewrap around them."""
    return processes(lambda words: words[-1] == owner.encode())


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"


@asynccontextmanager
async def under_way(*work: Coroutine[Any, Any, object]) -> AsyncIterator[list[asyncio.Task[object]]]:
    """What goes on while the block runs."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool], running: list[asyncio.Task[object]]) -> None:
    """Wait until a condition holds; fail with the error of a task that has failed."""

    def holds() -> bool:
        for task in running:
            if task.done():
                task.result()
        return condition()

    await wait_until(holds, 40)


async def wait_for_the_end(pids: set[int]) -> None:
    """Wait until processes have ended, each within its time."""
    poller = select.poll()
    waited = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            waited[descriptor] = pid
            poller.register(descriptor, select.POLLIN)
    while waited:
        ended = await asyncio.to_thread(poller.poll, 15_000)
        assert ended, f"still running: {waited}"
        for descriptor, _ in ended:
            poller.unregister(descriptor)
            os.close(descriptor)
            del waited[descriptor]


class Containers:
    """The containers of servers, in the tests' engine; none without one."""

    def __init__(self, address: str | None) -> None:
        self._client = None
        if address is not None:
            import docker

            self._client = docker.DockerClient(base_url=address, timeout=30)

    def of(self, owner: str) -> list[str]:
        if self._client is None:
            return []
        found = self._client.containers.list(all=True, filters={"label": f"dev.ludus.owner={owner}"})
        return [str(one.id) for one in found]

    def stop_first_process(self, container: str) -> None:
        """Have a container's first process not see that its input has ended, as if the engine had lost it."""
        assert self._client is not None
        os.kill(self._client.api.inspect_container(container)["State"]["Pid"], signal.SIGSTOP)

    def wait_removed(self, container: str) -> None:
        import docker.errors

        assert self._client is not None
        with contextlib.suppress(docker.errors.NotFound):
            self._client.api.wait(container, condition="removed", timeout=20)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


@pytest.fixture(params=["bubblewrap", "docker"])
async def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, str]]:
    """The variables that make a server use one backend."""
    variables = {"BACKEND": request.param}
    if request.param == "docker":
        variables |= {"IMAGE": IMAGE, "DOCKER_HOST": request.getfixturevalue("engine_address")}
        monkeypatch.setenv("DOCKER_HOST", variables["DOCKER_HOST"])
    await (await opened("docker" if request.param == "docker" else "bubblewrap-rlimits")).aclose()
    yield variables
    assert sleepers() == set()


@pytest.fixture
def containers(backend: dict[str, str]) -> Iterator[Containers]:
    with contextlib.closing(Containers(backend.get("DOCKER_HOST"))) as found:
        yield found


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.timeout(150)
async def test_nothing_outlives_a_killed_server_and_the_next_one_finds_nothing(
    backend: dict[str, str], containers: Containers, tmp_path: Path
) -> None:
    world = tmp_path / "world.py"
    world.write_text(WORLD, encoding="utf-8")
    async with origin(silent) as allowed:
        variables = {**backend, "ALLOWED": f"127.0.0.1:{allowed.port}"}
        async with served(world, variables) as server, connect(server.url, reconnect_seconds=0.0) as client:
            environment = client.environment("coding")
            episodes = [await environment.start() for _ in range(4)]
            tunnel = f'ALLOWED={variables["ALLOWED"]} python3 -c "{TUNNEL}"'
            async with under_way(
                episodes[0].call("shell", command=COMMANDS["daemons"]),
                episodes[1].call("shell", command=COMMANDS["stopped"]),
                episodes[2].call("shell", command=tunnel),
                episodes[3].grade(f"sleep {MARK}"),
            ) as running:
                await until(lambda: len(sleepers()) == SLEEPERS and allowed.connections == 1, running)
                count = 7 if "IMAGE" in backend else 14  # the warm ones, too
                await until(lambda: len(boxes_of(server.owner)) == count, running)
                lost, ended = await killed(server, containers, docker="IMAGE" in backend)
            await allowed.ended.wait()
        assert not is_alive(server.owner)
        assert containers.of(server.owner) == lost
        owner = server.owner
        async with served(world, variables) as server, connect(server.url) as client:
            assert containers.of(owner) == []
            assert remains(owner) == []
            await wait_for_the_end(ended)
            async with client.environment("coding").episode() as episode:
                shown = await episode.call("shell", command="echo works")
                assert "works" in str(shown)
            inside = boxes_of(server.owner)
            server.process.terminate()
            await server.process.wait()
            await wait_for_the_end(inside)
        assert remains(server.owner) == []
        assert containers.of(server.owner) == []


async def killed(server: Served, containers: Containers, *, docker: bool) -> tuple[list[str], set[int]]:
    """Kill a server whose boxes are all busy; the container that the engine is to lose, and all processes there were.

    Four episodes, a verifier and two warm ones make seven boxes, each two processes under bubblewrap, and one in a
    container.
    """
    stopped = processes(lambda words: words == [b"sh", b"-c", COMMANDS["stopped"].encode()])
    assert list(map(is_stopped, stopped)) == [True]
    boxes, held = boxes_of(server.owner), containers.of(server.owner)
    assert (len(boxes), len(held)) == ((7, 7) if docker else (14, 0))
    lost = held[:1]
    for container in lost:
        containers.stop_first_process(container)
    everything = boxes | sleepers() | stopped
    server.process.kill()
    if not docker:
        await wait_for_the_end(everything)
    for container in held[1:]:
        await asyncio.to_thread(containers.wait_removed, container)
    return lost, everything


KEEPING = """
import os

from ludus.server import Environment, Limits, SandboxSettings, Task, tool


class Coding(Environment[Task]):
    splits = {"train": [Task(id="one")]}
    sandbox_settings = SandboxSettings(provider=os.environ["BACKEND"], loopback=os.environ["BACKEND"] != "unsafe-local")

    def prompt(self) -> str:
        return "Run commands."

    @tool
    async def keep(self, command: str) -> str:
        '''Start a command on a terminal and without one.'''
        await self.sandbox.spawn(["sh", "-c", command])
        await self.sandbox.open_terminal(["sh", "-c", command])
        return "started"

    def grade(self, answer: str) -> float:
        return 1.0
"""


@pytest.mark.suite("sandbox")
@pytest.mark.parametrize("provider", ["bubblewrap", "unsafe-local"])
async def test_background_processes_and_terminals_do_not_outlive_a_killed_server(provider: str, tmp_path: Path) -> None:
    await (await opened("bubblewrap-rlimits")).aclose()
    world = tmp_path / "world.py"
    world.write_text(KEEPING, encoding="utf-8")
    command = f"trap '' HUP INT TERM; setsid sleep {MARK} & sleep {MARK}"
    variables = {"BACKEND": provider}
    async with served(world, variables) as server, connect(server.url, reconnect_seconds=0.0) as client:
        episodes = [await client.environment("coding").start() for _ in range(3)]
        for episode in episodes:
            await episode.call("keep", command=command)
        async with under_way(asyncio.Event().wait()) as running:
            await until(lambda: len(sleepers()) == 12, running)
        everything = boxes_of(server.owner) | sleepers()
        server.process.kill()
        await wait_for_the_end(everything)
    async with served(world, variables) as server:
        server.process.terminate()
        await server.process.wait()
    assert remains(server.owner) == []
    assert sleepers() == set()


async def test_a_server_that_starts_ends_all_commands_of_a_killed_one_that_isolated_nothing(tmp_path: Path) -> None:
    """It may find the program inside before that has ended its commands; here it never would."""
    world = tmp_path / "world.py"
    world.write_text(KEEPING, encoding="utf-8")
    command = f"trap '' HUP INT TERM; setsid sleep {MARK} & sleep {MARK}"
    async with (
        served(world, {"BACKEND": "unsafe-local"}) as server,
        connect(server.url, reconnect_seconds=0.0) as client,
    ):
        episode = await client.environment("coding").start()
        await episode.call("keep", command=command)
        async with under_way(asyncio.Event().wait()) as running:
            await until(lambda: len(sleepers()) == 4, running)
        everything = boxes_of(server.owner) | sleepers()
        for pid in boxes_of(server.owner):
            os.kill(pid, signal.SIGSTOP)
        server.process.kill()
        await server.process.wait()
        await asyncio.to_thread(kill_stale_processes)
        await wait_for_the_end(everything)
