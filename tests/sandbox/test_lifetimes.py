"""Boxes whose start is cut short: nothing that was begun outlives its caller, and nothing is handed out late."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sandboxing import leftovers, opened, settings_of

from ludus.sandbox import SandboxFailed
from ludus.sandbox.box_process import BoxProcess
from ludus.sandbox.pool import PooledProvider

Backend = tuple[str, PooledProvider]


@pytest.fixture(params=["bubblewrap", "bubblewrap-rlimits", "unsafe-local"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """One of our backends; nothing is left when the test ends, descriptors included."""
    before = descriptors()
    provider = await opened(request.param)
    assert isinstance(provider, PooledProvider)
    yield request.param, provider
    await provider.aclose()
    assert leftovers() == []
    await settled()
    assert descriptors() <= before + 1, "beyond what the loop keeps for itself"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def settled() -> None:
    """Let transports close that were asked to."""
    for _ in range(5):
        await asyncio.sleep(0)


POINTS = {
    "it connects": (asyncio, "open_unix_connection"),
    "it waits for the first process": (BoxProcess, "_enter_group"),
    "it waits for the program inside": (BoxProcess, "exchange"),
}


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, point: str) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Hold every start where it waits: an event for when it is there, and one that lets it go on."""
    place, name = POINTS[point]
    original, there, on = getattr(place, name), asyncio.Event(), asyncio.Event()

    async def waiting(*values: object, **named: object) -> object:
        there.set()
        await on.wait()
        return await original(*values, **named)

    with monkeypatch.context() as patch:
        patch.setattr(place, name, waiting)
        yield there, on


@pytest.mark.suite("sandbox", first=3)
@pytest.mark.parametrize("point", POINTS)
async def test_a_start_that_is_cancelled_where_it_waits_leaves_nothing(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    kind, provider = backend
    with held(monkeypatch, point) as (there, _):
        task: asyncio.Task[object] = asyncio.create_task(provider._start(settings_of(kind)))
        await there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert leftovers() == []


@pytest.mark.suite("sandbox", first=2)
@pytest.mark.parametrize("point", POINTS)
async def test_a_start_that_is_cancelled_again_and_again_leaves_no_box(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    kind, provider = backend
    for _ in range(2):
        with held(monkeypatch, point) as (there, on):
            task: asyncio.Task[object] = asyncio.create_task(provider.create(settings_of(kind)))
            await there.wait()
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            on.set()  # the start goes on to its end, so that what it began is known and can be ended


@pytest.mark.suite("sandbox", first=2)
@pytest.mark.parametrize("point", POINTS)
async def test_a_provider_that_closes_waits_for_the_boxes_that_start(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    kind, provider = backend
    with held(monkeypatch, point) as (there, on):
        starting: asyncio.Task[object] = asyncio.create_task(provider.create(settings_of(kind)))
        await there.wait()
        closing = asyncio.create_task(provider.aclose())
        await settled()
        assert not closing.done()
        on.set()
        await closing
    assert leftovers() == []
    with pytest.raises(SandboxFailed, match="closed"):
        await starting
    with pytest.raises(SandboxFailed, match="closed"):
        await provider.create(settings_of(kind))


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("passes", [1, 2, 3])
async def test_a_box_whose_end_is_itself_cancelled_ends(backend: Backend, passes: int) -> None:
    """As when the event loop ends just then: every task is canceled, whether it has begun or not."""
    kind, provider = backend
    box = await provider.create(settings_of(kind))
    before = asyncio.all_tasks()
    closing = asyncio.create_task(box.aclose())
    for _ in range(passes):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    async with asyncio.timeout(50):  # the kernel ends them, though nothing here waits for it any more
        while any(one.startswith("process") for one in await asyncio.to_thread(leftovers)):
            pass


@contextmanager
def room_for(more: int) -> Iterator[None]:
    """Let this process open so many further descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    free = (number for number in range(hard) if number not in used)
    limit = [next(free) for _ in range(more + 1)][-1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_server_out_of_descriptors_learns_it_and_keeps_all_that_it_has(backend: Backend) -> None:
    kind, provider = backend
    await (await provider.create(settings_of(kind))).aclose()
    await settled()
    before = descriptors()
    failed = 0
    for more in range(16):
        with room_for(more):
            (box,) = await asyncio.gather(provider.create(settings_of(kind)), return_exceptions=True)
            if isinstance(box, BaseException):
                assert isinstance(box, SandboxFailed)
                assert "Too many open files" in box.message
                failed += 1
            else:
                await box.aclose()
        await settled()
        assert descriptors() == before
        assert leftovers() == []
    assert 2 < failed < 15


async def test_a_container_whose_making_is_cancelled_is_removed(
    engine_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine goes on making what was requested, even if the caller is gone."""
    from ludus.sandbox.core.stale import OWNER
    from ludus.sandbox.docker import LABEL

    monkeypatch.setenv("DOCKER_HOST", engine_address)
    provider: Any = await opened("docker")
    api, asked, answer = provider._client.api, threading.Event(), threading.Event()
    create = api.create_container

    def slowly(*values: Any, **named: Any) -> Any:
        made = create(*values, **named)
        asked.set()
        answer.wait(50)
        return made

    monkeypatch.setattr(api, "create_container", slowly)
    starting: asyncio.Task[object] = asyncio.create_task(provider._start(settings_of("docker")))
    assert await asyncio.to_thread(asked.wait, 50)
    starting.cancel()
    await settled()
    answer.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert provider._client.containers.list(all=True, filters={"label": f"{LABEL}={OWNER}"}) == []
    await provider.aclose()
