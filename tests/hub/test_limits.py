"""Uploads that are slow, many, or given up: each ends in time, and leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from ludus.hub.app import create_hub
from ludus.hub.serve import HubServer
from ludus.hub.settings.hub import HubLimits, HubSettings

BEGINNING = (
    b"POST /index/upload/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    b'Content-Length: 1000\r\n\r\n--x\r\nContent-Disposition: form-data; name="content"; filename="a.whl"\r\n\r\nPK'
)


@asynccontextmanager
async def serving(folder: Path, **limits: float) -> AsyncIterator[int]:
    """Serve a hub with these limits in this loop; yields its port."""
    settings = HubSettings(port=0, data=folder / "data", seed=False, limits=HubLimits.model_validate(limits))
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = HubServer(create_hub(settings), settings, started.set_result)
    task = asyncio.create_task(server.serve())
    try:
        yield int((await asyncio.wait_for(started, 30)).rpartition(":")[2])
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 30)


async def begun(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(BEGINNING)
    await writer.drain()
    return reader, writer


async def status_of(reader: asyncio.StreamReader) -> int:
    return int((await asyncio.wait_for(reader.readline(), 20)).split()[1])


def files_of(folder: Path) -> Callable[[], list[Path]]:
    return lambda: list((folder / "data" / "blobs" / "incoming").iterdir())


async def settled(files: Callable[[], list[Path]], count: int) -> None:
    async with asyncio.timeout(20):
        while len(files()) != count:
            await asyncio.to_thread(lambda: None)


async def test_an_upload_that_does_not_arrive_is_ended_and_leaves_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, upload_seconds=0.5) as port:
        reader, writer = await begun(port)
        assert await status_of(reader) == 408
        await settled(files_of(tmp_path), 0)
        writer.close()


async def test_an_upload_whose_client_leaves_leaves_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as port:
        _, writer = await begun(port)
        await settled(files_of(tmp_path), 1)
        writer.transport.abort()
        await settled(files_of(tmp_path), 0)


async def test_more_uploads_than_may_arrive_at_once_wait_and_then_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, uploads=2, upload_seconds=1.0) as port, AsyncExitStack() as stack:
        readers = []
        for _ in range(4):
            reader, writer = await begun(port)
            stack.callback(writer.close)
            readers.append(reader)
        await settled(files_of(tmp_path), 2)
        statuses = sorted([await status_of(reader) for reader in readers])
        assert statuses.count(408) >= 2
        assert set(statuses) <= {408, 429}
        await settled(files_of(tmp_path), 0)


@pytest.mark.parametrize("field", ["wheel_bytes", "uploads", "upload_seconds"])
def test_limits_are_positive(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        HubLimits.model_validate({field: 0})
