"""Virtual environments that are removed when there are too many, and those that never are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from waiting import wait_until

from ludus.client import connect
from ludus.hub.endpoints.removal import SIZE_FILE, lock_folder, remove_unused

pytestmark = pytest.mark.timeout(120)


def made(folder: Path, number: int, size: int = 10) -> Path:
    """A folder like a virtual environment, which was used at a time of its own."""
    path = folder / f"{number:064x}"
    path.mkdir()
    (path / SIZE_FILE).write_text(str(size))
    os.utime(path, (1_000 + number, 1_000 + number))
    return path


@pytest.mark.parametrize(
    ("most", "most_bytes", "left"), [(2, 1000, [3, 4]), (10, 25, [3, 4]), (10, 1000, [1, 2, 3, 4])]
)
def test_those_unused_for_longest_go_first(tmp_path: Path, most: int, most_bytes: int, left: list[int]) -> None:
    paths = [made(tmp_path, number) for number in (1, 2, 3, 4)]
    (tmp_path / "another-folder").mkdir()
    remove_unused(tmp_path, most, most_bytes)
    assert [path for path in paths if path.exists()] == [paths[number - 1] for number in left]
    assert sorted(path.name for path in tmp_path.iterdir() if len(path.name) != 64) == ["another-folder"]


def test_one_that_is_in_use_stays(tmp_path: Path) -> None:
    first, second = made(tmp_path, 1), made(tmp_path, 2)
    lock = lock_folder(first)
    assert lock is not None
    os.utime(first, (1, 1))
    assert remove_unused(tmp_path, 1, 1000) == [second.name]
    assert remove_unused(tmp_path, 0, 0) == []
    os.close(lock)
    assert remove_unused(tmp_path, 0, 0) == [first.name]
    assert lock_folder(first) is None


def test_what_a_killed_process_used_can_be_removed(tmp_path: Path) -> None:
    folder = made(tmp_path, 1)
    code = (
        "import sys; from pathlib import Path; from ludus.hub.endpoints.removal import lock_folder\n"
        "lock_folder(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        assert remove_unused(tmp_path, 0, 0) == [], "another process uses it"
        process.kill()
        process.wait(60)
    assert remove_unused(tmp_path, 0, 0) == [folder.name]


@pytest.mark.suite("hub-endpoints")
async def test_a_hub_keeps_the_environment_of_an_endpoint_that_runs(start_hub: Any, tools: Any) -> None:
    hub = await start_hub(shared=False, limits={"environments": 1}, idle_seconds=0.5)
    for name in ("one", "two"):
        await hub.publish(name)
    folder = hub.data / "environments"

    def kept() -> set[str]:
        return {path.name for path in folder.iterdir() if len(path.name) == 64}

    async with connect(hub.address("one")) as client:
        episode = await client.environment("counter").start(index=0)
        first = kept()
        async with httpx.AsyncClient(timeout=60) as web:
            assert (await web.get(hub.address("two") + "/health")).status_code == 200
        assert first < kept(), "both run, so both stay"
        await episode.close()
    await wait_until(lambda: not any(server.running for server in hub.endpoints.servers()))
    await hub.publish("three")
    async with httpx.AsyncClient(timeout=60) as web:
        assert (await web.get(hub.address("three") + "/health")).status_code == 200
        assert len(kept()) == 1
        assert (await web.get(hub.address("one") + "/health")).status_code == 200, "it is installed again"
