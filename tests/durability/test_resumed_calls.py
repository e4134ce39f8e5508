"""A server dies after it has sent the task id of an ORS call and before the result: the call is made again, once.

The tools wait at a gate until the server is killed; its successor finds the gate open. A proxy reports when the task id
has gone to the client, and whether the client asked for the call again by that id.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from cutting import CuttingProxy
from durable_server import Process
from peer_clients import peer_variables, python_of

from ludus.client import connect, text_of
from ludus.client.sync import connect as connect_sync
from ludus.protocol.episodes import Candidate
from ludus.protocol.lifecycle import EndReason

T = TypeVar("T")
WORLD = (Path(__file__).with_name("gated_world.py"), ("Gated", "Opening"))
TASK_ID_EVENT = b"3a\r\nevent: task_id\r\n"
"""The first chunk of a stream whose result is not ready; `/create_session` answers at once, without chunks."""
TASK_ID_FIELD = b'"task_id":'
PATIENCE = 60.0
REPEATER = Path(__file__).parents[1] / "ors" / "peers" / "repeater.py"


class Scene:
    """A server, a proxy before it, and one death."""

    def __init__(self, served: Process, proxy: CuttingProxy) -> None:
        self.url = proxy.url
        self._served = served
        self._proxy = proxy

    async def restart(self) -> None:
        """Kill the server, and open the gate for its successor."""
        await self._served.end()
        self._open_gate()
        await self._served.start()

    async def kill_worker(self) -> None:
        """Kill the process that began the work, and open the gate for its successor, which the supervisor starts."""
        self._open_gate()
        os.kill(int(self._runs()[0][0]), signal.SIGKILL)

    async def during(
        self, request: Awaitable[T], death: Callable[[], Awaitable[None]], begun: bytes = TASK_ID_EVENT, *,
        resumed: bool = True,
    ) -> T:  # fmt: skip
        """Make a request, and let a death happen once these bytes have passed. Return what the request returns.

        Args:
            request: the request.
            death: what happens.
            begun: the bytes; by default, the task id of a call.
            resumed: whether the client has to ask for the call by its task id.
        """
        passed, asked_again = self._proxy.expect(begun), self._proxy.expect(TASK_ID_FIELD)
        asking = asyncio.ensure_future(request)
        async with asyncio.timeout(PATIENCE):
            await passed.wait()
            await death()
            try:
                return await asking
            finally:
                assert asked_again.is_set() is resumed

    def runs(self, what: str) -> int:
        """How many processes began a piece of work."""
        pids = [pid for pid, name in self._runs() if name == what]
        assert len(pids) == len(set(pids)), "no process began it twice"
        return len(pids)

    def _runs(self) -> list[list[str]]:
        return [line.split() for line in (self._served.folder / "runs.txt").read_text("utf-8").splitlines()]

    def _open_gate(self) -> None:
        (self._served.folder / "open").touch()


@asynccontextmanager
async def staging(folder: Path, *options: str, journaled: bool = True) -> AsyncIterator[Scene]:
    """Open a scene with a server that has these options."""
    served = Process(folder, *options, world=WORLD, journaled=journaled)
    await served.start()
    try:
        async with CuttingProxy(served.url).running() as proxy:
            yield Scene(served, proxy)
    finally:
        await served.end(signal.SIGTERM)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A scene with a server of one process."""
    async with staging(tmp_path) as opened:
        yield opened


async def test_a_step_whose_task_id_the_next_process_does_not_know_is_made_again_and_runs_once(scene: Scene) -> None:
    async with connect(scene.url, wire="ors", reconnect_seconds=PATIENCE) as client:
        episode = await client.environment("gated").start()
        await episode.call("add", number=1)
        step = await scene.during(episode.call("add_behind_gate", number=2), scene.restart)
        assert (step.step, text_of(step.content)) == (2, "3")
        assert scene.runs("add") == 2, "once in the process that died, and once in the next one"
        await episode.call("add", number=4)
        assert [entry.reward.value for entry in (await episode.rewards()).entries] == [1.0, 2.0, 4.0]


@pytest.mark.suite("histories")
async def test_a_final_message_whose_task_id_the_next_process_does_not_know_is_graded_once(scene: Scene) -> None:
    async with connect(scene.url, wire="ors", reconnect_seconds=PATIENCE) as client:
        episode = await client.environment("gated").start()
        await episode.call("add", number=1)
        graded = await scene.during(episode.grade("1"), scene.restart)
        assert graded.info.end_reason is EndReason.SUBMITTED
        assert graded.info.reward is not None
        assert graded.info.reward.value == 2.0
        assert scene.runs("grade") == 2


@pytest.mark.suite("histories")
async def test_a_group_whose_scoring_the_next_process_does_not_know_is_scored_by_it(scene: Scene) -> None:
    async with (
        connect(scene.url, wire="ors", reconnect_seconds=PATIENCE) as client,
        client.environment("gated").group(2) as group,
    ):
        scoring = group.score({one.id: Candidate(messages=()) for one in group})
        scores = await scene.during(scoring, scene.restart)
        assert [score.value for score in scores.values()] == [0.0, 1.0]


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize("journaled", [True, False])
async def test_a_start_that_the_next_process_does_not_know_is_made_again(tmp_path: Path, journaled: bool) -> None:
    async with (
        staging(tmp_path, journaled=journaled) as scene,
        connect(scene.url, wire="ors", reconnect_seconds=PATIENCE) as client,
    ):
        starting = client.environment("opening").start(seed=5)
        episode = await scene.during(starting, scene.restart, b"/task_tools", resumed=False)
        assert text_of((await episode.call("add", number=1)).content) == "1"


@pytest.mark.suite("histories")
async def test_the_blocking_client_makes_such_a_step_again(scene: Scene) -> None:
    client = connect_sync(scene.url, wire="ors", reconnect_seconds=PATIENCE)
    try:
        episode = await asyncio.to_thread(client.environment("gated").start)
        calling = asyncio.to_thread(episode.call, "add_behind_gate", number=2)
        step = await scene.during(calling, scene.restart)
        assert text_of(step.content) == "2"
        assert scene.runs("add") == 2
    finally:
        await asyncio.to_thread(client.close)


@pytest.mark.suite("histories")
async def test_a_step_is_made_again_when_one_of_several_workers_dies(tmp_path: Path) -> None:
    async with (
        staging(tmp_path, "--workers", "2") as scene,
        connect(scene.url, wire="ors", reconnect_seconds=PATIENCE) as client,
    ):
        episode = await client.environment("gated").start()
        await episode.call("add", number=1)
        step = await scene.during(episode.call("add_behind_gate", number=2), scene.kill_worker)
        assert (step.step, text_of(step.content)) == (2, "3")
        assert scene.runs("add") == 2


@pytest.mark.suite("histories")
@pytest.mark.parametrize("options", [(), ("--workers", "2")])
async def test_without_a_journal_the_episode_is_lost_to_the_infrastructure_and_unscored(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    async with (
        staging(tmp_path, *options, journaled=False) as scene,
        connect(scene.url, wire="ors", reconnect_seconds=PATIENCE) as client,
        client.environment("gated").drive() as driver,
    ):
        death = scene.kill_worker if options else scene.restart
        call = {"type": "function", "id": "1", "function": {"name": "add_behind_gate", "arguments": '{"number": 2}'}}
        acting = driver.act({"role": "assistant", "content": None, "tool_calls": [call]})
        observed = await scene.during(acting, death)
        outcome = await driver.finish()
        assert observed.done
        assert outcome.value is None
        assert outcome.failure is not None
        assert outcome.failure.kind == "infrastructure"
        assert scene.runs("add") == 1


@pytest.mark.suite("histories")
@pytest.mark.parametrize(("peer", "kind"), [("ors-sdk", "ors"), ("openreward", "openreward")])
async def test_a_peers_client_which_has_no_keys_gets_an_error_and_no_step_runs_twice(
    scene: Scene, peer: str, kind: str
) -> None:
    client = await asyncio.create_subprocess_exec(
        python_of(peer), str(REPEATER), kind, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env=peer_variables(),
    )  # fmt: skip
    assert client.stdin is not None
    assert client.stdout is not None
    try:
        assert b"ready" in await client.stdout.readline()
        calls = [["add", {"number": 1}], ["add_behind_gate", {"number": 2}]]
        job = {"id": "a", "url": scene.url, "environment": "gated", "split": "train", "index": 0, "calls": calls}
        client.stdin.write(json.dumps(job).encode() + b"\n")
        line = await scene.during(client.stdout.readline(), scene.restart)
        first, second = json.loads(line)["answers"]
        assert first == "1"
        assert second.startswith("raised ")
        assert "unknown task_id" in second
        assert scene.runs("add") == 1
    finally:
        client.kill()
        await client.wait()
