"""Environments of the library that need sandboxes: their packages ask for what their endpoints need."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ludus.client import connect, text_of
from ludus.hub import seed
from ludus.hub.app import parts_of
from ludus.registry.types.packages import Resources
from ludus.sandbox import Limits, SandboxSettings
from ludus.server import Environment, Task, tool

pytestmark = pytest.mark.timeout(120)
MEBIBYTE = 1024 * 1024


class Counter(Environment[Task]):
    """Run a command in a sandbox."""

    version = "1.0"
    splits = {"train": [Task(id="only")]}
    sandbox_settings = SandboxSettings(limits=Limits(memory=256 * MEBIBYTE, disk=256 * MEBIBYTE, processes=32))

    def prompt(self) -> str:
        """Say what to do."""
        return "Run."

    @tool
    async def run(self, command: str) -> str:
        """Run a command."""
        return (await self.sandbox.run(["sh", "-c", command])).stdout.decode()


HEADER = """
from ludus.sandbox import Limits, SandboxSettings
from ludus.server import Environment, Task, tool

MEBIBYTE = 1024 * 1024


"""


class Modest(Counter):
    """Run a command in a small sandbox."""

    sandbox_settings = SandboxSettings(limits=Limits(memory=64 * MEBIBYTE, disk=16 * MEBIBYTE))


class Huge(Counter):
    """Run a command in a sandbox that no endpoint can have twice."""

    sandbox_settings = SandboxSettings(limits=Limits(memory=4096 * MEBIBYTE))


class Chooses(Counter):
    """Run a command in the sandbox of the task."""

    sandbox_settings = None  # type: ignore[assignment]

    @classmethod
    def sandbox_for(cls, task: Task) -> SandboxSettings:
        """Return the settings of the task."""
        return SandboxSettings()


class Plain(Counter):
    """Run nothing."""

    sandbox_settings = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("cls", "memory"), [(Counter, 1110), (Modest, None), (Huge, 2048), (Chooses, 1792), (Plain, None)]
)
def test_a_package_asks_for_the_memory_of_two_sandboxes(cls: type[Environment[Any]], memory: int | None) -> None:
    assert seed.resources_of(cls) == Resources(memory_mb=memory)


async def test_the_library_is_published_with_its_needs(start_hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = parts_of((await start_hub()).app).hub
    monkeypatch.setattr(seed, "load_environment", lambda name: Counter)
    key = Ed25519PrivateKey.generate()
    await asyncio.to_thread(seed.publish_built_in, hub, "counter", ("code",), "1.0.0", key)
    record = hub.catalog_of(seed.OPERATOR).version(seed.OWNER, "counter", "1.0.0")
    assert record.manifest.resources == Resources(memory_mb=1110)
    assert record.signed


@pytest.mark.suite("hub-endpoints")
async def test_such_an_endpoint_has_room_for_two_sandboxes(start_hub: Any) -> None:
    hub = await start_hub(replicas=1)
    source = HEADER + inspect.getsource(Counter)
    address = await hub.publish("counter", source=source, resources=seed.resources_of(Counter))
    async with connect(address) as client:
        episodes = await asyncio.gather(*(client.environment("counter").start(index=0) for _ in range(2)))
        for number, episode in enumerate(episodes):
            await episode.call("run", command=f"echo {number} > kept")
        seen = [text_of((await episode.call("run", command="cat kept")).content).strip() for episode in episodes]
    assert seen == ["0", "1"]
