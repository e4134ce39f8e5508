"""Runs that report to a real hub: curves that arrive while the run goes on, a hub that dies, and runs that resume."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hubs import HubProcess
from toys import Even, Serve, metrics_of, run, run_config
from waiting import wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """An open hub without packages."""
    process = HubProcess(tmp_path_factory.mktemp("hub") / "data", "--no-seed")
    yield process
    assert process.stop() == 0


def api(hub: HubProcess, path: str = "") -> Any:
    with hub.client() as client:
        return client.get(f"/api/v1/training{path}").json()


def named(hub: HubProcess, name: str) -> list[Any]:
    """The runs with a name."""
    return [one for one in api(hub)["runs"] if one["name"] == name]


class Gated(Even):
    """Held-out episodes wait until the points of the steps before them are at the hub."""

    seen: asyncio.Event

    async def setup(self) -> None:
        """Wait."""
        if self.task.id.startswith("test"):
            await Gated.seen.wait()


@pytest.mark.suite("training")
async def test_curves_arrive_while_the_run_goes_on(serve: Serve, tiny: Path, tmp_path: Path, hub: HubProcess) -> None:
    Gated.seen = asyncio.Event()
    server = await serve(Gated)
    environments = [{"url": server.url, "name": "gated"}]
    settings = {"hub": {"url": hub.url, "name": "my run", "rollouts": 1}}
    config = run_config(
        tmp_path / "run", tiny, server.url, environments=environments, logging=settings, evaluation={"every": 2}
    )
    running = asyncio.create_task(run(config))

    async def has_points() -> bool:
        assert not running.done(), running.result()
        found = await asyncio.to_thread(named, hub, "my run")
        return bool(found) and found[0]["points"] >= 2

    await wait_until(has_points)
    (live,) = named(hub, "my run")
    assert (live["state"], live["lastStep"], live["name"], live["steps"]) == ("running", 2, "my run", 4)
    Gated.seen.set()
    await running
    ended = api(hub, f"/{live['key']}")
    assert (ended["state"], ended["lastStep"], ended["rollouts"], ended["dropped"]) == ("finished", 4, 4, 0)
    assert ended["environments"] == [{"name": "gated", "package": None, "version": None}]
    assert ended["config"]["optimizer"]["learning_rate"] == 1e-3
    curves = {one["name"]: one for one in api(hub, f"/{live['key']}/curves")["curves"]}
    written = metrics_of(config.output)
    for name in ("reward/mean", "loss/entropy", "throughput/trained_tokens"):
        assert curves[name]["mean"] == [line[name] for line in written]
    notes = (config.output / "metrics.jsonl").read_text()
    assert f"reporting to {hub.url}, for your account only" in notes
    assert f"the run is shown at {hub.url}/training/{live['key']}" in notes


@pytest.mark.suite("training")
async def test_a_resumed_run_continues_its_curves(serve: Serve, tiny: Path, tmp_path: Path, hub: HubProcess) -> None:
    server = await serve(Even)
    settings = {"hub": {"url": hub.url, "name": "resumed"}}
    for steps in (2, 4):
        await run(run_config(tmp_path / "run", tiny, server.url, steps=steps, logging=settings))
    (found,) = named(hub, "resumed")
    assert [one["step"] for one in found["restarts"]] == [2]
    curves = {one["name"]: one for one in api(hub, f"/{found['key']}/curves")["curves"]}
    assert curves["reward/mean"]["steps"] == [1, 2, 3, 4]


async def test_a_run_that_fails_says_so_at_the_hub(serve: Serve, tiny: Path, tmp_path: Path, hub: HubProcess) -> None:
    from ludus.trainer.core.errors import TrainerError

    server = await serve(Even)
    broken = {"hub": {"url": hub.url, "name": "broken"}}
    config = run_config(
        tmp_path / "run", tiny, server.url, logging=broken, optimizer={"learning_rate": 1e30, "clip_gradient": 1e30}
    )
    with pytest.raises(TrainerError):
        await run(config)
    (found,) = named(hub, "broken")
    assert found["state"] == "failed"
    assert "Error" in found["reason"]
