"""`SteppedEnvironment` and `LocalServer`, on which the adapters for Gymnasium and OpenEnv stand."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from terminal import clean_variables
from threaded import server_in_thread

from ludus.client import ServerAddress
from ludus.client.local_server import LocalServer
from ludus.client.sync import run_sync
from ludus.integrations.stepped import SteppedEnvironment
from ludus.integrations.unscored import UNSCORED
from ludus.protocol.errors import EpisodeFailed, InvalidParams
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Reward
from ludus.server import Environment, Result, Task, tool


class Judged(Environment[Task]):
    """A tool whose judge may give no verdict, and a grade on top of what the steps earned."""

    splits = {"train": [Task(id=f"task-{index}") for index in range(50)]}

    def prompt(self) -> str:
        return f"Task {self.task.id}."

    @tool
    def act(self, judged: bool) -> Result:
        """Act."""
        return Result("acted", reward=0.25 if judged else Reward.unscored("the judge gave no verdict"))

    def grade(self, answer: str) -> float:
        return float(answer == "yes")


class Unseeded(Judged):
    """The same without seeds."""

    seedable = False


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_in_thread(Judged, Unseeded) as server:
        yield server.url


@pytest.fixture
def judged(url: str) -> Iterator[SteppedEnvironment]:
    environment = SteppedEnvironment(ServerAddress(url), "judged", adapter="stepped")
    yield environment
    environment.close()
    environment.close()


def test_rewards_of_steps_and_grade_add_up_to_the_total(judged: SteppedEnvironment) -> None:
    for answer, grade in (("yes", 1.0), ("no", 0.0)):
        judged.start(seed=1)
        steps = [judged.call("act", {"judged": True}), judged.call("act", '{"judged": true}'), judged.answer(answer)]
        assert [step.reward for step in steps] == [0.25, 0.25, grade]
        assert steps[-1].end_reason == EndReason.SUBMITTED
        assert (steps[-1].terminated, steps[-1].truncated, judged.is_open) == (True, False, False)
        with pytest.raises(InvalidParams, match="reset the environment first"):
            judged.answer(answer)


def test_a_step_without_a_verdict_ends_the_episode_unscored(judged: SteppedEnvironment) -> None:
    before = UNSCORED["stepped"]
    judged.start(seed=1)
    judged.call("act", {"judged": True})
    with pytest.raises(EpisodeFailed, match="the judge gave no verdict"):
        judged.call("act", {"judged": False})
    assert (judged.is_open, UNSCORED["stepped"]) == (False, before + 1)


def test_a_seed_draws_the_task_of_an_environment_that_is_not_seedable(url: str) -> None:
    unseeded = SteppedEnvironment(ServerAddress(url), "unseeded", adapter="stepped")
    first = [unseeded.start(seed=seed).task.id for seed in range(8)]
    assert [unseeded.start(seed=seed).task.id for seed in range(8)] == first
    assert len(set(first)) > 1
    assert unseeded.start(seed=1, index=7).task.id == "task-7"
    unseeded.close()


def test_an_environment_that_was_forgotten_closes_its_episode(url: str) -> None:
    forgotten = SteppedEnvironment(ServerAddress(url), "judged", adapter="stepped")
    forgotten.start(seed=1)
    assert forgotten._driver is not None
    episode = forgotten._driver.episode
    del forgotten
    gc.collect()

    async def wait() -> None:
        closing = [
            task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == "Client.close"
        ]
        await asyncio.wait_for(asyncio.gather(*closing), 10)

    run_sync(wait())
    assert episode.ended


def test_a_local_server_outlives_the_thread_that_started_it() -> None:
    started: list[LocalServer] = []
    thread = threading.Thread(target=lambda: started.append(LocalServer(["guess_number"])))
    thread.start()
    thread.join()
    (server,) = started
    try:
        for _ in range(300):  # the server would end meanwhile
            with urllib.request.urlopen(f"{server.url}/health", timeout=10) as reply:
                assert reply.status == 200
    finally:
        server.close()


def test_a_local_server_ends_when_its_parent_is_killed() -> None:
    program = (
        "import sys, time\n"
        "from ludus.client.local_server import LocalServer\n"
        "server = LocalServer(['guess_number'])\n"
        "print(server.url, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_variables()
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{address}/health", timeout=10) as reply:
            assert reply.status == 200
        os.kill(process.pid, signal.SIGKILL)
    host, port = address.removeprefix("http://").split(":")
    with contextlib.suppress(ConnectionError), socket.create_connection((host, int(port)), timeout=20) as connection:
        assert connection.recv(1) == b""  # it ends with the server
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}/health", timeout=10)
