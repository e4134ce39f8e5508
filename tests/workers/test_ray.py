"""Workers that run in a Ray cluster: episodes are played as on one machine, and survive what happens to the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from mcp import Client as McpClient
from ray_cluster import RayCluster, command_of, descendants, parent_of
from waiting import is_running, wait_until
from worker_servers import PATIENCE, WORLD, WorkersServer

from ludus.client import Episode, connect, text_of
from ludus.protocol.errors import ConnectionFailed, EpisodeNotFound, InfrastructureFailed
from ludus.protocol.workers import worker_of, worker_of_session

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.suite("ray"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
]

LOST = (InfrastructureFailed, EpisodeNotFound)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A cluster of a head without room for workers, and a node that has it."""
    made = RayCluster(0)
    try:
        made.add(6)
        yield made
    finally:
        made.close()


@pytest.fixture
async def serve(launch: Any, cluster: RayCluster) -> Any:
    """`server = await serve(journal=True)`: a server whose workers are in the cluster."""

    async def start(*options: str, journal: bool, on: RayCluster = cluster, **settings: Any) -> WorkersServer:
        server: WorkersServer = await launch(
            *options, "--ray", on.address, "--ray-cpus", "0.5", journal=journal, variables=on.variables, **settings
        )
        return server

    return start


async def total(episode: Episode, number: int) -> int:
    """The sum after adding a number."""
    return int(text_of((await episode.call("add", number=number)).content).split()[0])


def worker(episode: Episode) -> str | None:
    return worker_of(episode.id) or worker_of_session(episode.id)


@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_episodes_are_played_over_every_transport(serve: Any, wire: Any) -> None:
    server: WorkersServer = await serve(journal=False)
    async with connect(server.url, wire=wire) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0, seed=number) for number in range(6)]
        assert {worker(one) for one in episodes} == {"w0", "w1"}
        for count in (1, 2, 3):
            sums = await asyncio.gather(*(total(one, number) for number, one in enumerate(episodes)))
            assert sums == [number * count for number in range(6)]
        graded = await asyncio.gather(*(one.grade(str(3 * number)) for number, one in enumerate(episodes)))
        assert [one.reward.value for one in graded if one.reward is not None] == [1.0] * 6
        if (url := episodes[0].play_url) is not None:
            async with McpClient(url) as agent:
                assert "add" in {tool.name for tool in (await agent.list_tools()).tools}
    for name in ("w0", "w1"):
        assert server.pid not in (parent_of(server.pid_of(name)), server.pid_of(name)), "Ray has started it"


def kill_child(server: WorkersServer) -> None:
    os.kill(server.pid_of("w0"), signal.SIGKILL)


def kill_actor(server: WorkersServer) -> None:
    actor = parent_of(server.pid_of("w0"))
    assert b"NodeProcess" in command_of(actor)
    os.kill(actor, signal.SIGKILL)


@pytest.mark.parametrize(
    ("kill", "wire", "journal"),
    [
        (kill_child, "channel", True), (kill_child, "channel", False), (kill_child, "mcp", True),
        (kill_child, "ors", False), (kill_actor, "channel", True), (kill_actor, "mcp", False),
    ],
)  # fmt: skip
async def test_a_worker_whose_process_or_actor_is_killed_is_replaced(
    serve: Any, kill: Any, wire: Any, journal: bool
) -> None:
    server: WorkersServer = await serve(journal=journal)
    await check_death(server, kill, journal, wire)


async def check_death(server: WorkersServer, kill: Any, journal: bool, wire: Any = "channel") -> None:
    """Play, let something kill worker 0, and check what the episodes are then."""
    async with connect(server.url, wire=wire) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0, seed=number) for number in range(6)]
        await asyncio.gather(*(total(one, 1) for one in episodes))
        pid = server.pid_of("w0")
        kill(server)
        sums = await asyncio.gather(*(total(one, 2) for one in episodes), return_exceptions=True)
        for one, result in zip(episodes, sums, strict=True):
            if journal or worker(one) == "w1":
                assert result == 3
            else:
                assert isinstance(result, LOST)
        await server.replaced("w0", pid)
        await wait_until(lambda: not is_running(pid), PATIENCE)
        if not journal:
            again = [await ledger.start(index=0) for _ in range(4)]
            assert await asyncio.gather(*(total(one, 4) for one in again)) == [4] * 4


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "no journal"])
async def test_a_node_that_is_lost_gives_its_workers_to_another(serve: Any, cluster: RayCluster, journal: bool) -> None:
    cluster.add(6)
    server: WorkersServer = await serve(journal=journal)
    raylets = {name: parent_of(parent_of(server.pid_of(name))) for name in ("w0", "w1")}
    assert len(set(raylets.values())) == 2, "Ray spreads the workers"

    def kill_node(server: WorkersServer) -> None:
        for pid in (*descendants(raylets["w0"]), raylets["w0"]):
            with contextlib.suppress(ProcessLookupError):  # it has ended with its parent
                os.kill(pid, signal.SIGKILL)

    await check_death(server, kill_node, journal)
    assert parent_of(parent_of(server.pid_of("w0"))) != raylets["w0"]


async def test_a_rolling_restart_moves_episodes_to_other_processes(serve: Any) -> None:
    server: WorkersServer = await serve(journal=True)
    async with connect(server.url) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0, seed=number) for number in range(6)]
        await asyncio.gather(*(total(one, 1) for one in episodes))
        before = [server.pid_of(name) for name in ("w0", "w1")]
        os.kill(server.pid, signal.SIGHUP)
        await wait_until(lambda: "all workers were restarted" in server.said, PATIENCE)
        assert await asyncio.gather(*(total(one, 2) for one in episodes)) == [3] * 6
        assert not {*before} & {server.pid_of(name) for name in ("w0", "w1")}
        await wait_until(lambda: not any(map(is_running, before)), PATIENCE)
        assert not any(map(is_running, [parent_of(pid) for pid in before if is_running(pid)]))
    assert "cannot start" not in server.said


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_actor_and_no_process_outlives_the_supervisor(serve: Any, number: int) -> None:
    server: WorkersServer = await serve(journal=True)
    children = [server.pid_of(name) for name in ("w0", "w1")]
    actors = [parent_of(pid) for pid in children]
    own = descendants(server.pid)
    assert any(b"ray_driver" in command_of(pid) for pid in own)
    assert await server.end(number) == (0 if number == signal.SIGTERM else -number)
    await wait_until(lambda: not any(map(is_running, [*children, *actors, *own])), PATIENCE)


async def test_clients_find_a_server_by_its_name_as_long_as_it_runs(
    serve: Any, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)
    server: WorkersServer = await serve("--ray-name", "my lab", journal=False)
    found = f"ludus+ray://{cluster.address}/my%20lab"
    async with connect(found) as client:
        assert await total(await client.environment("ledger").start(index=0), 5) == 5
    await server.end(signal.SIGKILL)
    with pytest.raises(ConnectionFailed, match=r"my lab.*(no running server has this name|has ended)"):
        connect(found)
    with pytest.raises(ValueError, match="is not ludus"):
        connect(f"ludus+ray://{cluster.address}")


async def test_a_worker_that_waits_for_a_place_says_what_the_cluster_lacks(serve: Any) -> None:
    server: WorkersServer = await serve(journal=False)
    server_log = server.log
    await server.end(signal.SIGTERM)
    server.options = (*server.options, "--ray-cpus", "100")
    starting = asyncio.ensure_future(server.start())
    await wait_until(
        lambda: "waits for a Ray node with room for 100 CPU; the cluster has 6 CPU" in server_log.read_text(), PATIENCE
    )
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    with pytest.raises(AssertionError):
        await starting


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "no journal"])
async def test_after_the_loss_of_the_head_workers_go_on_on_this_machine(
    serve: Any, journal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")  # when Ray's processes give up; 60 by default
    cluster = RayCluster(0)
    try:
        cluster.add(6)
        server: WorkersServer = await serve(journal=journal, on=cluster)
        async with connect(server.url, reconnect_seconds=60) as client:
            ledger = client.environment("ledger")
            episodes = [await ledger.start(index=0, seed=number) for number in range(6)]
            await asyncio.gather(*(total(one, 1) for one in episodes))
            before = [server.pid_of(name) for name in ("w0", "w1")]
            cluster.lose_head()
            assert await asyncio.gather(*(total(one, 1) for one in episodes)) == [2] * 6, "steps do not need Ray"
            await wait_until(
                lambda: all(server.pid_of(f"w{number}") != pid for number, pid in enumerate(before)), PATIENCE
            )
            sums = await asyncio.gather(*(total(one, 1) for one in episodes), return_exceptions=True)
            assert sums == [3] * 6 if journal else all(isinstance(one, LOST) for one in sums)
            assert await total(await ledger.start(index=0), 7) == 7
        assert "is started on this machine" in server.said
        assert not any(map(is_running, before))
        assert await server.end(signal.SIGTERM) == 0
    finally:
        cluster.close()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """The address of a Redis server of its own."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "Ready to accept connections" not in process.stdout.readline():
        assert process.poll() is None
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_with_redis_a_head_that_comes_back_places_workers_again(serve: Any, redis: str) -> None:
    cluster = RayCluster(0, redis)
    try:
        cluster.add(6)
        server: WorkersServer = await serve(journal=True, on=cluster)
        async with connect(server.url) as client:
            ledger = client.environment("ledger")
            episodes = [await ledger.start(index=0, seed=number) for number in range(6)]
            await asyncio.to_thread(cluster.stop_state)
            assert await asyncio.gather(*(total(one, 1) for one in episodes)) == [1] * 6, "steps do not need Ray"
            await asyncio.to_thread(cluster.start_state)
            pid = await server.kill("w0")
            assert await asyncio.gather(*(total(one, 1) for one in episodes)) == [2] * 6
            await server.replaced("w0", pid)
        assert len(server.pids("w1")) == 1
        assert "is started on this machine" not in server.said
    finally:
        cluster.close()


async def test_a_cluster_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    command = ["serve", f"{WORLD}:Ledger", "--port", "0", "--workers", "2", "--ray", "127.0.0.1:1"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ludus.cli", *command, cwd=tmp_path, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **RayCluster.variables},
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE):
        _, log = await process.communicate()
    assert process.returncode not in (0, -signal.SIGKILL)
    assert "ludus: cannot use the Ray cluster at 127.0.0.1:1: " in log.decode()


async def test_nodes_get_the_code_of_the_working_directory(serve: Any, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    shutil.copy(WORLD, code / "only_here.py")
    server: WorkersServer = await serve("--ray-working-dir", str(code), journal=True, specs=("only_here.py:Ledger",))
    async with connect(server.url) as client:
        episode = await client.environment("ledger").start(index=0)
        assert await total(episode, 2) == 2
    where = os.readlink(f"/proc/{server.pid_of('w0')}/cwd")
    assert where not in (str(code), str(tmp_path))
    assert "only_here.py" in os.listdir(where)
