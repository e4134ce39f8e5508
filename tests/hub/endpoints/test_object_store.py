"""Endpoints whose wheels lie in an object store."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from object_stores import ObjectStore

from ludus.client import connect, text_of
from ludus.hub.access.viewers import STRANGER
from ludus.hub.app import parts_of

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def variables(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in object_store.variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.suite("hub-endpoints")
async def test_an_endpoint_is_installed_from_the_store(
    variables: None, start_hub: Any, object_store: ObjectStore
) -> None:
    hub = await start_hub(shared=False, blobs=object_store.new_bucket())
    await hub.publish()
    async with connect(hub.address()) as client:
        episode = await client.environment("counter").start(index=0)
        assert text_of((await episode.call("add", number=3)).content).startswith("3")
        await episode.close()


async def test_an_endpoint_does_not_run_a_changed_wheel(
    variables: None, start_hub: Any, object_store: ObjectStore
) -> None:
    bucket = object_store.new_bucket()
    hub = await start_hub(shared=False, blobs=bucket)
    await hub.publish()
    digest = parts_of(hub.app).hub.catalog_of(STRANGER).version("ada", "counter").sha256
    object_store.change(bucket, digest, b"another wheel")
    async with httpx.AsyncClient() as web:
        answer = await web.get(hub.address() + "/health")
    assert answer.status_code == 424
    assert "was changed" in answer.json()["error"]["message"]
