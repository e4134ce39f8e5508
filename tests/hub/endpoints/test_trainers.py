"""Trainers and clients of others play at the endpoint of a hub, unchanged."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from ors_seats import SitPeer, peer_seats
from peer_clients import peer_variables, python_of

from ludus.hub.access.viewers import STRANGER
from ludus.hub.app import parts_of
from ludus.hub.endpoints.hosts import host_address
from ludus.hub.site.usage import snippets
from ludus.trainer.core.tiny import make_tiny_model

ROOT = Path(__file__).parents[3]
PACKAGES = [str(ROOT / folder) for folder in ("protocol", "server", "client_sdk", "environments", "trainer")]
PROGRAMS = ROOT / "tests" / "integrations" / "peers"
NAMES = str(ROOT / "tests" / "support" / "localhost_names")
SMALL = ("--steps=1", "--rollouts.groups=2", "--rollouts.group_size=2", "--evaluation.tasks=2",
         "--rollouts.drop_zero_variance=false")  # fmt: skip

pytestmark = [pytest.mark.timeout(400), pytest.mark.suite("hub-endpoints")]


@pytest.fixture
async def sit_peer() -> AsyncIterator[SitPeer]:
    async with peer_seats(PYTHONPATH=NAMES) as sit:
        yield sit


def snippet(hub: Any, title: str) -> str:
    """The snippet of `ada/counter` with this title."""
    record = parts_of(hub.app).hub.catalog_of(STRANGER).version("ada", "counter")
    file_url = f"{hub.url}/files/{record.sha256}/{record.filename}"
    host = host_address(hub.url, "localhost", "ada", "counter", "1.0.0")
    found = snippets(record, hub.url, file_url, hub.address(), host)
    return next(one.code for one in found if one.title == title)


async def run(*command: str, cwd: Path, **variables: str) -> str:
    """Run a program, which must succeed, and return what it writes to its standard output."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env={**peer_variables(), **variables}, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = await asyncio.wait_for(process.communicate(), 350)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, (output + errors).decode()[-4000:]
    return output.decode()


@pytest.mark.parametrize(("peer", "job"), [("ors-sdk", {}), ("openreward", {}), ("openreward", {"variant": "counter"})])
async def test_the_clients_of_ors_play_and_get_rewards(hub: Any, sit_peer: SitPeer, peer: str, job: Any) -> None:
    address = host_address(hub.url, "localhost", "ada", "counter")
    seat = await sit_peer(peer, address, environment="counter", **job)
    assert seat.seen["splits"] == ["train"]
    answers = [await seat.call("add", number=number) for number in (3, 4)]
    assert [(answer["blocks"][0], answer["reward"]) for answer in answers] == [("3", 3.0), ("7", 4.0)]


async def test_the_snippet_of_the_page_opens_a_session_with_the_client_of_ors(hub: Any, tmp_path: Path) -> None:
    said = await run(python_of("ors-sdk"), "-c", snippet(hub, "ORS client"), cwd=tmp_path, PYTHONPATH=NAMES)
    assert "Add, at version 1.0.0." in said
    assert "'add'" in said


async def test_trl_trains_with_the_snippet_of_the_page(hub: Any, tmp_path: Path) -> None:
    job = json.dumps({"code": snippet(hub, "TRL")})
    path = os.pathsep.join([*PACKAGES, str(PROGRAMS)])
    said = await run(python_of("trl"), str(PROGRAMS / "trl_of_hub.py"), job, cwd=tmp_path, PYTHONPATH=path)
    (log,) = json.loads(said.splitlines()[-1])["logs"]
    assert log["reward"] > 0, "each call of the model adds 2 and earns 2"


async def test_ludus_train_trains_with_the_snippet_of_the_page(hub: Any, tmp_path: Path) -> None:
    text = snippet(hub, "ludus train").partition("cat > run.toml <<'END'\n")[2].partition("\nEND\n")[0]
    (tmp_path / "run.toml").write_text(text + "\n", encoding="utf-8")
    model = await asyncio.to_thread(make_tiny_model, tmp_path / "model", hidden=32, layers=2, heads=2)
    options = (f"--model.path={model}", f"--output={tmp_path / 'runs'}", *SMALL)
    await run(
        sys.executable, "-m", "ludus.cli", "train", "run.toml", *options, cwd=tmp_path, OMP_NUM_THREADS="1",
        PYTHONPATH=os.pathsep.join(PACKAGES),
    )  # fmt: skip
    (log,) = (tmp_path / "runs").rglob("metrics.jsonl")
    steps = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert any("reward/mean" in step for step in steps)
