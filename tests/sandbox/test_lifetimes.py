"""Boxes whose start is cut short: nothing that was begun outlives whoever wanted it, and nothing is handed out late."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from sandboxing import leftovers, opened, settings_of

from ludus.server.sandbox import SandboxFailed
from ludus.server.sandbox.pool import PooledProvider

Backend = tuple[str, PooledProvider]


@pytest.fixture(params=["bubblewrap", "bubblewrap-rlimits", "unsafe-local"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """A backend of ours; nothing is left when the test ends, descriptors included."""
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
    """Let transports close that were told to."""
    for _ in range(5):
        await asyncio.sleep(0)


async def begun(task: asyncio.Task[object]) -> None:
    """Wait until a box's processes are there, while it is not yet ready."""
    async with asyncio.timeout(10):
        while not any(one.startswith("process") for one in leftovers()):
            await settled()
    assert not task.done()


async def test_whoever_is_cancelled_again_and_again_while_a_box_starts_leaves_none(backend: Backend) -> None:
    kind, provider = backend
    for _ in range(5):
        task: asyncio.Task[object] = asyncio.create_task(provider.create(settings_of(kind)))
        await begun(task)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_start_that_is_itself_cancelled_ends_what_it_started(backend: Backend) -> None:
    """As when the event loop ends in the middle of it."""
    kind, provider = backend
    for _ in range(5):
        task: asyncio.Task[object] = asyncio.create_task(provider._start(settings_of(kind)))
        await begun(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert leftovers() == []


async def test_a_box_that_starts_while_its_provider_closes_is_not_handed_out(backend: Backend) -> None:
    kind, provider = backend
    task: asyncio.Task[object] = asyncio.create_task(provider.create(settings_of(kind)))
    await begun(task)
    await provider.aclose()
    assert leftovers() == []
    with pytest.raises(SandboxFailed, match="closed"):
        await task
    with pytest.raises(SandboxFailed, match="closed"):
        await provider.create(settings_of(kind))


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


async def test_a_server_out_of_descriptors_is_told_so_and_keeps_all_that_it_has(backend: Backend) -> None:
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
