"""The blocking client: derived, complete, and usable from many threads."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from threaded import server_in_thread
from waiting import block_until
from worlds import Playground

from ludus.client import Harness, RandomPolicy, ServerAddress, sync
from ludus.client.portal import portal
from ludus.protocol import EndReason, text_of
from ludus.protocol.errors import EpisodeEnded, SplitNotFound
from ludus.server import ServerLimits

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_in_thread(Playground) as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[sync.Client]:
    with sync.connect(url) as client:
        yield client


def test_the_blocking_client_is_generated_and_not_stale() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate_sync.py", "--check"], capture_output=True, text=True, timeout=50
    )
    assert check.returncode == 0, check.stderr


def test_a_whole_episode_blocks_and_works(client: sync.Client) -> None:
    environment = client.environment("playground")
    assert [task.id for task in environment.tasks("validation")] == [f"r-{n}" for n in range(5)]
    with environment.episode(index=1) as episode:
        assert text_of(episode.prompt[0].content) == "Say word 1."
        assert text_of(episode.call("add", amount=3).content) == "count 3"
        with episode.fork() as branch:
            assert text_of(branch.call("add").content) == "count 4"
        graded = episode.grade("no idea")
        assert graded.info.end_reason is EndReason.SUBMITTED
        assert episode.rewards().total.value == 0.25
        with pytest.raises(EpisodeEnded):
            episode.call("add")


def test_groups_are_iterated_and_indexed(client: sync.Client) -> None:
    with client.environment("playground").group(3, seed=5) as group:
        assert [episode.id for episode in group] == [group[n].id for n in range(3)] == [e.id for e in group.episodes]
        assert len({text_of(episode.call("roll").content) for episode in group}) == 1


def test_the_block_closes_when_an_exception_leaves_it(client: sync.Client) -> None:
    with pytest.raises(ZeroDivisionError), client.environment("playground").episode() as episode:
        raise ZeroDivisionError
    assert episode.info().end_reason is EndReason.CLOSED


def test_errors_are_the_same_classes(client: sync.Client) -> None:
    with pytest.raises(SplitNotFound):
        client.environment("playground").task("nope", index=0)


def test_many_threads_share_one_client(client: sync.Client) -> None:
    environment = client.environment("playground")
    together = threading.Barrier(16)

    def play(number: int) -> list[str]:
        together.wait(timeout=20)
        with environment.episode() as episode:
            return [text_of(episode.call("add").content) for _ in range(10)]

    with ThreadPoolExecutor(16) as threads:
        played = list(threads.map(play, range(16)))
    assert played == [[f"count {n}" for n in range(1, 11)]] * 16


def test_threads_may_share_an_episode(client: sync.Client) -> None:
    with client.environment("playground").episode() as episode, ThreadPoolExecutor(8) as threads:
        steps = sorted(result.step for result in threads.map(lambda _: episode.call("add"), range(40)))
        assert steps == list(range(1, 41))


def test_episodes_live_while_the_caller_blocks() -> None:
    with (
        server_in_thread(Playground, limits=ServerLimits(idle_seconds=1.0, grace_seconds=0.2)) as server,
        sync.connect(server.url) as client,
        client.environment("playground").episode() as episode,
    ):
        held = server.app.context.host.store.find(episode.id)
        block_until(lambda: held.used > held.began + 2.5)  # blocked, for more than twice the idle limit
        assert episode.call("add").step == 1


def test_the_portal_does_not_wait_for_itself() -> None:
    async def inside() -> Any:
        return portal().call(nothing())

    async def nothing() -> None: ...

    with pytest.raises(RuntimeError, match="from within"):
        portal().call(inside())


def test_a_program_that_ends_without_closing_still_ends(url: str) -> None:
    program = (
        "from ludus.client import sync\n"
        f"client = sync.connect({url!r})\n"
        "episode = client.environment('playground').start()\n"
        "print(episode.call('add').step)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout.strip()) == (0, "1")
    assert "Traceback" not in done.stderr


def test_a_driver_blocks_and_works(client: sync.Client) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"amount": 3}'}}
    with client.environment("playground").drive(index=1) as driver:
        observations, done = driver.act({"role": "assistant", "content": None, "tool_calls": [call]})
        assert [one["content"] for one in observations] == ["count 3"]
        assert not done
        assert driver.act("no idea").done
        assert driver.finish().value == 0.25
        assert driver.episode.ended


def test_rollouts_block_and_end_when_their_iterator_is_closed(client: sync.Client) -> None:
    environment = client.environment("playground")
    found = sync.rollout_all(environment, RandomPolicy(1), n=3, seed=1, harness=Harness(max_turns=2))
    assert [trajectory.task.id for trajectory in found] == ["r-0", "r-1", "r-2"]
    with contextlib.closing(sync.rollout(environment, RandomPolicy(1), harness=Harness(max_turns=2))) as stream:
        assert next(iter(stream)).environment == "playground"
    assert not environment._inner._session.open_episodes


def test_a_client_that_is_left_open_is_closed_in_silence_when_the_interpreter_exits(url: str) -> None:
    program = (
        "import sys\nfrom ludus.client.sync import connect\n"
        "client = connect(sys.argv[1])\nepisode = client.environment('playground').start()\nprint(episode.id)"
    )
    command = [sys.executable, "-W", "error", "-c", program, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    with sync.connect(url) as client, client.environment("playground").episode() as other:
        other._inner.id = done.stdout.strip()  # type: ignore[misc]
        assert other.info().end_reason is EndReason.CLOSED


def test_coroutines_of_the_callers_own_run_in_the_loop_of_the_blocking_client(url: str) -> None:
    async def play() -> float | None:
        async with ServerAddress(url).task("playground", "train", "r-1").drive() as driver:
            await driver.act("no idea")
            return (await driver.finish()).value

    assert [sync.run_sync(play()) for _ in range(2)] == [0.0, 0.0]
