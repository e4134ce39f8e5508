"""What packages ask for in their manifests, and what their endpoints get."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from ludus.client import connect, text_of
from ludus.registry.types.packages import Resources

pytestmark = pytest.mark.timeout(120)
MEGABYTE = 1024 * 1024

WRITE = """
try:
    with open("/tmp/large", "wb") as file:
        for _ in range(30):
            file.write(bytes(1024 * 1024))
    print("written")
except OSError as error:
    print(error.strerror)
"""


async def written(address: str) -> str:
    async with connect(address) as client:
        episode = await client.environment("counter").start(index=0)
        return text_of((await episode.call("run", code=WRITE)).content)


@pytest.mark.suite("hub-endpoints")
async def test_an_endpoint_gets_the_disk_that_its_manifest_asks_for(start_hub: Any) -> None:
    hub = await start_hub(limits={"disk": 16 * MEGABYTE, "most_disk": 64 * MEGABYTE})
    asking = await hub.publish("asking", resources=Resources(disk_mb=64))
    modest = await hub.publish("modest")
    assert "written" in await written(asking)
    assert "No space left" in await written(modest)


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (Resources(memory_mb=4096), "`most_memory`"),
        (Resources(disk_mb=4096), "`most_disk`"),
        (Resources(cpus=64), "`most_cpus`"),
        (Resources(gpus=1), "1 GPUs"),
        (Resources(memory_mb=2**53 - 1), "`most_memory`"),
    ],
    ids=["memory", "disk", "cpus", "gpus", "huge"],
)
async def test_more_than_the_operator_allows_is_refused_with_the_setting(
    start_hub: Any, tools: Any, resources: Resources, words: str
) -> None:
    hub = await start_hub()
    await hub.publish("greedy", resources=resources)
    async with httpx.AsyncClient() as web:
        answer = await web.get(hub.address("greedy") + "/health")
    assert answer.status_code == 403
    assert words in answer.json()["error"]["message"]
    assert "ada/greedy@1.0.0 asks for" in answer.json()["error"]["message"]
    assert not tools.server_processes()
