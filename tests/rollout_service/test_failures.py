"""Workers, servers, readers and the service itself that go away: nothing is lost in silence, and nothing stays open."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rollout_clients import Answer, Endpoint, RunningService, World, wait_ended
from terminal import LUDUS, clean_variables, running_episodes
from waiting import is_running

pytestmark = pytest.mark.suite("rollout-service")

WORLD = Path(__file__).parents[1] / "support" / "adapter_world.py"


@pytest.fixture
def pair(start_service: RunningService.Start, server: str, endpoint: Endpoint) -> World:
    """A service of its own with two workers."""
    return World(start_service("--workers", 2), server, endpoint)


def test_the_episodes_of_a_killed_worker_are_closed_and_played_again_and_have_one_line_each(pair: World) -> None:
    with pair.service.stream("POST", "/rollouts", pair.request("held", n=8, retries=2)) as stream:
        pair.endpoint.wait_held(8)
        pair.service.kill_worker()
        pair.service.wait_until("/status", lambda status: status["worker_deaths"] == 1)
        pair.endpoint.wait_held(8)  # those of the dead worker wait again, in another one
        assert running_episodes(pair.server) == 8, "the episodes that the worker had open are closed"
        pair.endpoint.release()
        *lines, end = list(stream)
    assert sorted(line["index"] for line in lines) == list(range(8))
    assert {line["type"] for line in lines} == {"episode"}
    again = [line for line in lines if line["attempt"] == 2]
    assert len(again) == 4
    assert {line["earlier"][0]["error"] for line in again} == {"WorkerDied"}
    counts = {"episodes": 8, "scored": 8, "unscored": 0, "canceled": 0, "attempts": 12}
    assert end["counts"] == counts
    pair.service.wait_until("/status", lambda status: len(status["workers"]) == 2)  # it was replaced


def test_an_episode_whose_workers_die_again_and_again_is_unscored_and_counted(pair: World) -> None:
    with pair.service.stream("POST", "/rollouts", pair.request("held", n=4, retries=0)) as stream:
        pair.endpoint.wait_held(4)
        pair.service.kill_worker()
        lines = stream.take(2)
        pair.endpoint.release()
        *others, end = list(stream)
    assert {(line["type"], line["problem"]["error"]) for line in lines} == {("unscored", "WorkerDied")}
    assert {line["type"] for line in others} == {"episode"}
    assert sorted(line["index"] for line in (*lines, *others)) == list(range(4))
    assert (end["counts"]["scored"], end["counts"]["unscored"]) == (2, 2)


def test_all_workers_killed_at_once_lose_nothing(pair: World) -> None:
    with pair.service.stream("POST", "/rollouts", pair.request("held", n=6)) as stream:
        pair.endpoint.wait_held(6)
        for pid in pair.service.workers():
            os.kill(pid, signal.SIGKILL)
        pair.service.wait_until("/status", lambda status: status["worker_deaths"] == 2)
        pair.endpoint.wait_held(6)
        pair.endpoint.release()
        *lines, end = list(stream)
    assert sorted(line["index"] for line in lines) == list(range(6))
    assert end["counts"]["scored"] == 6


def test_a_worker_that_hangs_is_replaced_and_its_episodes_are_played_again(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service("--workers", 2, "--worker-seconds", 3), server, endpoint)
    with world.service.stream("POST", "/rollouts", world.request("held", n=4, retries=5)) as stream:
        endpoint.wait_held(4)
        os.kill(world.service.workers()[0], signal.SIGSTOP)
        world.service.wait_until("/status", lambda status: status["worker_deaths"] > 0)
        endpoint.wait_held(4)
        endpoint.release()
        *lines, end = list(stream)
    assert sorted(line["index"] for line in lines) == list(range(4))
    assert end["counts"]["scored"] == 4


def test_canceling_ends_the_episodes_and_leaves_none_open(world: World) -> None:
    with world.service.stream("POST", "/rollouts", world.request("held", n=8, concurrency=4)) as stream:
        world.endpoint.wait_held(4)
        assert running_episodes(world.server) == 4
        status = world.service.ask("DELETE", f"/rollouts/{stream.job}")
        assert running_episodes(world.server) == 0
        world.endpoint.wait_held(0)
        lines = list(stream)
    counts = {"episodes": 8, "scored": 0, "unscored": 0, "canceled": 8, "attempts": 4}
    assert (status["state"], status["running"], status["counts"]) == ("canceled", 0, counts)
    assert [(line["type"], line["counts"]) for line in lines] == [("end", counts)]


def test_a_slow_reader_stops_new_episodes_until_it_reads(world: World) -> None:
    request = world.request(tasks=[{"index": 0}], samples=512, ahead=4, trajectory=True)
    with world.service.stream("POST", "/rollouts", request, receive=1 << 15) as stream:
        path = f"/rollouts/{stream.job}"
        stuck = world.service.wait_until(path, lambda job: job["running"] == 0)
        assert stuck["state"] == "running"
        assert 0 < stuck["lines"] < 256
        assert running_episodes(world.server) == 0
        *lines, end = list(stream)
    assert sorted(line["index"] for line in lines) == list(range(512))
    assert end["counts"]["scored"] == 512


def test_a_reader_that_never_reads_is_cut_off_and_its_job_expires(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service("--keep-seconds", 1), server, endpoint)
    request = world.request(tasks=[{"index": 0}], samples=512, ahead=4, trajectory=True)
    with world.service.stream("POST", "/rollouts", request, receive=1 << 15) as stream:
        with pytest.raises(Answer, match="there is no job"):
            world.service.wait_until(f"/rollouts/{stream.job}", lambda job: job["state"] == "completed")
    assert running_episodes(server) == 0


def test_a_reader_that_is_gone_stops_new_episodes_until_it_comes_back(world: World) -> None:
    status = world.service.ask("POST", "/rollouts", world.request(n=20, ahead=6, stream=False))
    path = f"/rollouts/{status['job']}"
    stuck = world.service.wait_until(path, lambda job: job["lines"] > 0 and job["running"] == 0)
    assert (stuck["lines"], stuck["counts"]["attempts"]) == (6, 6)
    with world.service.stream("GET", f"{path}/lines") as stream:
        assert len(list(stream)) == 21


@pytest.fixture
def mortal_server() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """An environment server to kill."""
    process = subprocess.Popen(
        [str(LUDUS), "serve", f"{WORLD}:Sums", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean_variables(),
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://[\d.]+:\d+", line):
                yield found[0], process
                break
        process.kill()
        process.stdout.close()


def test_a_killed_environment_server_leaves_its_episodes_unscored_and_the_service_goes_on(
    world: World, mortal_server: tuple[str, subprocess.Popen[str]]
) -> None:
    url, process = mortal_server
    own = World(world.service, url, world.endpoint)
    with world.service.stream("POST", "/rollouts", own.request("held", n=4, retries=0)) as stream:
        world.endpoint.wait_held(4)
        process.kill()
        world.endpoint.release()
        *lines, end = list(stream)
    assert {(line["type"], line["problem"]["kind"]) for line in lines} == {("unscored", "infrastructure")}
    assert sorted(line["index"] for line in lines) == list(range(4))
    assert end["counts"]["unscored"] == 4
    assert world.service.play(world.request(n=2))[-1]["counts"]["scored"] == 2


def test_a_terminated_service_lets_its_episodes_end_and_says_what_was_not_played(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service(), server, endpoint)
    workers = world.service.workers()
    with world.service.stream("POST", "/rollouts", world.request("held", n=8, concurrency=2)) as stream:
        endpoint.wait_held(2)
        world.service.process.terminate()
        world.service.wait_until("/status", lambda status: bool(status["draining"]))
        with pytest.raises(Answer, match="503"):
            world.service.play(world.request())
        endpoint.release()
        *lines, end = list(stream)
    assert [line["reward"] for line in lines] == [1.0, 1.0]
    assert (end["state"], end["counts"]["canceled"]) == ("stopped", 6)
    assert world.service.process.wait(timeout=30) == 0
    assert not any(map(is_running, workers))


def test_a_second_signal_cancels_the_episodes_at_once(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service(), server, endpoint)
    with world.service.stream("POST", "/rollouts", world.request("held", n=4)) as stream:
        endpoint.wait_held(4)
        world.service.process.terminate()
        world.service.wait_until("/status", lambda status: bool(status["draining"]))
        world.service.process.terminate()
        (end,) = list(stream)
    assert (end["state"], end["counts"]["canceled"]) == ("stopped", 4)
    assert world.service.process.wait(timeout=30) == 0


def test_a_killed_service_leaves_no_episode_and_no_worker(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service(), server, endpoint)
    workers = world.service.workers()
    with world.service.stream("POST", "/rollouts", world.request("held", n=4)):
        endpoint.wait_held(4)
        world.service.process.kill()
        for pid in workers:
            wait_ended(pid)
    assert running_episodes(server) == 0
