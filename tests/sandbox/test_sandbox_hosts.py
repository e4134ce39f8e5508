"""A pool of several `ludus sandboxd`: where sandboxes go, hosts that vanish, hang and return, and real episodes."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from hosting import TOKEN, SandboxHost, network_namespace, sandboxd
from sandboxing import TIGHT, leftovers, opened, settings_of
from serving import served
from waiting import wait_until

from ludus.client import Answer, Call, CallItem, Conversation, connect, rollout_all
from ludus.sandbox import Sandbox, SandboxFailed, SandboxProvider, SandboxSettings
from ludus.sandbox.remote.box import RemoteBox
from ludus.sandbox.remote.daemon import Daemon, serving_sandboxes
from ludus.sandbox.remote.host import Timing
from ludus.sandbox.remote.provider import Sandboxd
from ludus.sandbox.remote.session import HostLimits

SETTINGS = settings_of("sandboxd", TIGHT)
QUICK = Timing(connect=5.0, silence=3.0, first_pause=0.1, longest_pause=0.2)


@contextmanager
def hosts(folder: Path, *options: tuple[str, ...]) -> Iterator[list[SandboxHost]]:
    """Hosts on this machine, which leave nothing behind."""
    with ExitStack() as stack:
        found = [
            stack.enter_context(sandboxd(folder, "--grace-seconds", "0.5", *more, log=f"host{number}.log"))
            for number, more in enumerate(options)
        ]
        yield found
    assert [left for host in found for left in leftovers(host.owner) if left.startswith("process")] == []


@asynccontextmanager
async def pool(*urls: str) -> AsyncIterator[Sandboxd]:
    provider = Sandboxd(urls, token=TOKEN, timing=QUICK)
    await provider.open()
    try:
        yield provider
    finally:
        await provider.aclose()


def host_of(box: Sandbox) -> str:
    assert isinstance(box, RemoteBox)
    return box._session.host


async def until_up(provider: Sandboxd, url: str, up: bool = True) -> None:
    host = next(host for host in provider._hosts if host.url == url)
    await wait_until(lambda: bool(host.usable) is up)


async def test_sandboxes_go_to_the_host_with_the_most_room_until_all_are_full(tmp_path: Path) -> None:
    with hosts(tmp_path, ("--max-boxes", "6"), ("--max-boxes", "2")) as (large, small):
        async with pool(large.url, small.url) as provider:
            boxes = await asyncio.gather(*(provider.create(SETTINGS) for _ in range(4)))
            assert Counter(map(host_of, boxes)) == {large.url: 4}
            boxes += [await provider.create(SETTINGS) for _ in range(4)]
            assert Counter(map(host_of, boxes)) == {large.url: 6, small.url: 2}
            with pytest.raises(SandboxFailed) as full:
                await provider.create(SETTINGS)
            for host in (large, small):
                assert host.url in full.value.message
            assert "it has 6 sandboxes and room for 6" in full.value.message
            await next(box for box in boxes if host_of(box) == small.url).aclose()
            assert host_of(await provider.create(SETTINGS)) == small.url


@pytest.mark.suite("sandbox")
async def test_a_host_that_vanishes_takes_only_its_own_sandboxes_and_is_used_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    with hosts(tmp_path, (), ()) as (first, second):
        async with pool(first.url, second.url) as provider:
            boxes = [await provider.create(SETTINGS) for _ in range(4)]
            assert Counter(map(host_of, boxes)) == {first.url: 2, second.url: 2}
            runs = [asyncio.create_task(box.run(["sh", "-c", "until [ -e go ]; do sleep 0.01; done"])) for box in boxes]
            second.kill()
            for box, run in zip(boxes, runs, strict=True):
                if host_of(box) == second.url:
                    with pytest.raises(SandboxFailed, match=f"its host {second.url} was lost"):
                        await asyncio.wait_for(run, 20)
                else:
                    assert (await (await box.spawn(["touch", "go"])).wait()).ok
                    assert (await asyncio.wait_for(run, 20)).ok
            assert {host_of(await provider.create(SETTINGS)) for _ in range(3)} == {first.url}
            with sandboxd(tmp_path, port=second.port, log="again.log"):
                await until_up(provider, second.url)
                assert host_of(await provider.create(SETTINGS)) == second.url
        with sandboxd(tmp_path):
            assert leftovers(second.owner) == []


@pytest.mark.suite("sandbox")
async def test_a_host_that_hangs_is_noticed_without_a_request_and_used_again_when_it_goes_on(tmp_path: Path) -> None:
    with hosts(tmp_path, (), ()) as (first, second):
        async with pool(first.url, second.url) as provider:
            boxes = [await provider.create(SETTINGS) for _ in range(2)]
            hung = next(box for box in boxes if host_of(box) == second.url)
            process = await hung.spawn(["sleep", "50"])
            second.process.send_signal(signal.SIGSTOP)
            with pytest.raises(SandboxFailed, match="nothing arrived for 3 s"):
                await asyncio.wait_for(process.wait(), 30)
            assert {host_of(await provider.create(SETTINGS)) for _ in range(3)} == {first.url}
            await asyncio.wait_for(hung.aclose(), 20)
            second.process.send_signal(signal.SIGCONT)
            await until_up(provider, second.url)
            again = await provider.create(SETTINGS)
            assert host_of(again) == second.url
            assert (await again.run(["true"])).ok


class SlowProvider:
    """A backend that starts no sandbox until `go` is set."""

    def __init__(self, inner: SandboxProvider) -> None:
        self._inner = inner
        self.name = inner.name
        self.open, self.prepare, self.aclose = inner.open, inner.prepare, inner.aclose
        self.go = asyncio.Event()

    async def create(self, settings: SandboxSettings) -> Sandbox:
        await self.go.wait()
        return await self._inner.create(settings)


async def test_a_host_that_is_slow_to_start_sandboxes_does_not_slow_the_others() -> None:
    slowly = SlowProvider(await opened("bubblewrap"))
    quick = Daemon(await opened("bubblewrap"), token=TOKEN, limits=HostLimits(boxes=30))
    slow = Daemon(slowly, token=TOKEN, limits=HostLimits(boxes=40))
    async with serving_sandboxes(quick) as near, serving_sandboxes(slow) as far, pool(near, far) as provider:
        starts = [asyncio.create_task(provider.create(SETTINGS)) for _ in range(24)]
        await wait_until(lambda: all(one.done() for one in starts[-6::2]))
        waiting = [one for one in starts if not one.done()]
        assert {host_of(one.result()) for one in starts if one.done()} == {near}
        assert len(waiting) > 8, "more than a server starts at once by itself"
        slowly.go.set()
        assert {host_of(await one) for one in waiting} == {far}
    assert leftovers() == []


async def test_a_server_starts_when_only_one_of_its_hosts_answers_and_the_message_of_none_names_each(
    tmp_path: Path,
) -> None:
    with hosts(tmp_path, ()) as (host,):
        async with pool("ws://127.0.0.1:1", host.url, "ws://localhost:2") as provider:
            assert host_of(await provider.create(SETTINGS)) == host.url
            host.kill()
            await until_up(provider, host.url, False)
            with pytest.raises(SandboxFailed) as none:
                await provider.create(SETTINGS)
            for url in ("ws://127.0.0.1:1: ", f"{host.url}: ", "ws://localhost:2: "):
                assert url in none.value.message
        with sandboxd(tmp_path):
            assert leftovers(host.owner) == []


@pytest.mark.suite("sandbox")
async def test_warm_sandboxes_of_a_lost_host_are_not_handed_out(tmp_path: Path) -> None:
    with hosts(tmp_path, (), ()) as (first, second):
        async with pool(first.url, second.url) as provider:
            settings = SETTINGS.model_copy(update={"warm": 4})
            await provider.prepare(settings)
            second.kill()
            await until_up(provider, second.url, False)
            boxes = [await provider.create(settings) for _ in range(3)]
            assert {host_of(box) for box in boxes} == {first.url}
            for box in boxes:
                assert (await box.run(["true"])).ok
        with sandboxd(tmp_path):
            assert leftovers(second.owner) == []


# ── episodes ───────────────────────────────────────────────────────────────────────────────────────────────────────

WORLD = """
from ludus.server import Environment, SandboxSettings, Task, tool


class Coding(Environment[Task]):
    splits = {"train": [Task(id=str(number)) for number in range(12)]}
    sandbox_settings = SandboxSettings(provider="sandboxd", warm=0)

    def prompt(self) -> str:
        return "Run commands."

    @tool
    async def shell(self, command: str) -> str:
        '''Run a command.'''
        return (await self.sandbox.run(["sh", "-c", command])).text

    async def grade(self, answer: str) -> float:
        return float(await self.sandbox.read("first") == b"1\\n" and await self.sandbox.read("second") == b"2\\n")
"""


class TwoSteps:
    """A policy that waits between its two commands until `go` is set."""

    def __init__(self) -> None:
        self.between = 0
        self.all_between = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, conversation: Conversation) -> Call | Answer:
        calls = sum(isinstance(item, CallItem) for item in conversation.items)
        if calls == 0:
            return Call("shell", {"command": "echo 1 > first"})
        if calls == 1:
            self.between += 1
            if self.between == 12:
                self.all_between.set()
            await self.go.wait()
            return Call("shell", {"command": "echo 2 > second"})
        return Answer("done")


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.timeout(150)
@pytest.mark.parametrize("retries", [0, 2])
async def test_episodes_on_a_host_that_is_killed_in_another_network_are_unscored_and_refilled_and_others_go_on(
    tmp_path: Path, retries: int
) -> None:
    world = tmp_path / "world.py"
    world.write_text(WORLD, encoding="utf-8")
    with network_namespace() as (prefix, address), ExitStack() as stack:
        here = stack.enter_context(sandboxd(tmp_path, log="here.log"))
        there = stack.enter_context(
            sandboxd(tmp_path, "--host", address, "--grace-seconds", "0.5", prefix=prefix, log="there.log")
        )
        variables = {"LUDUS_SANDBOXD": f"{here.url},{there.url}", "LUDUS_SANDBOXD_TOKEN": TOKEN}
        async with served(world, variables) as server, connect(server.url) as client:
            policy = TwoSteps()
            playing = asyncio.create_task(
                rollout_all(client.environment("coding"), policy, concurrency=12, retries=retries)
            )
            await asyncio.wait_for(policy.all_between.wait(), 60)
            there.kill()
            policy.go.set()
            played = await asyncio.wait_for(playing, 60)
        assert len(played) == 12
        hurt = [one for one in played if (one.incidents if retries else one.failure)]
        assert len(hurt) == 6, [one.failure for one in played]
        for one in hurt:
            failure = one.incidents[0] if retries else one.failure
            assert failure is not None
            assert failure.kind == "infrastructure"
            assert one.value is None or retries
        assert [one.value for one in played if one.scored] == [1.0] * (12 if retries else 6)
        if not retries:
            assert {one.end_reason for one in hurt} == {"infrastructure_error"}
        assert leftovers(here.owner) == []
    with sandboxd(tmp_path):
        assert leftovers(there.owner) == []


@pytest.mark.suite("sandbox")
@pytest.mark.timeout(120)
async def test_nothing_outlives_a_killed_server_on_any_of_its_hosts(tmp_path: Path) -> None:
    world = tmp_path / "world.py"
    world.write_text(WORLD, encoding="utf-8")
    with hosts(tmp_path, (), ()) as (first, second):
        variables = {"LUDUS_SANDBOXD": f"{first.url},{second.url}", "LUDUS_SANDBOXD_TOKEN": TOKEN}
        async with served(world, variables) as server, connect(server.url, reconnect_seconds=0.0) as client:
            environment = client.environment("coding")
            episodes = [await environment.start() for _ in range(4)]
            command = "(setsid sleep 1000 &) ; sleep 1000"
            running = [asyncio.create_task(episode.call("shell", command=command)) for episode in episodes]
            await wait_until(lambda: bool(leftovers(first.owner) and leftovers(second.owner)))
            server.process.kill()
            await wait_until(lambda: not (leftovers(first.owner) or leftovers(second.owner)))
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        assert first.process.poll() is None
        assert second.process.poll() is None
