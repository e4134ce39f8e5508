"""Play URLs of a run at two hub processes: any of them serves the episodes of the other one, until that is killed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_ports import free_ports
from hubs import HubProcess, WheelParts, kind_of, published, release
from postgres_server import PostgresServer

from ludus.client.agent_endpoint import open_agent_endpoint
from ludus.registry.types.packages import EnvironmentEntry

pytestmark = [pytest.mark.timeout(180)]
SETTINGS = "[results]\nlease_seconds = 10.0\nsweep_seconds = 0.5\n[endpoints]\nspares = false\n"
PARAMS = {"environment": "toss", "split": "train", "tasks": 2, "declared": {"model": "m"}}


def ticket_of(client: httpx.Client, run: str) -> dict[str, Any]:
    answer = client.post(f"/api/v1/runs/{run}/episodes")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["ticket"]
    return found


@pytest.mark.suite("hub-endpoints")
async def test_an_agent_plays_through_another_process_than_that_of_its_episode(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url, ports = postgres.new_url(), free_ports(2)
    (tmp_path / "settings.toml").write_text(SETTINGS)

    def options(port: int) -> tuple[str, ...]:
        more = ("--settings", str(tmp_path / "settings.toml"), "--no-seed")
        return ("--port", str(port), "--peer-url", f"http://127.0.0.1:{port}", *more)

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = HubProcess(tmp_path / "a" / "hub", *options(ports[0]), database=url)
    parts = WheelParts("local-coins")
    entry = EnvironmentEntry(name="toss", source=f"{parts.package}:Toss")
    with first.client() as client:
        published(client, release("local/coins", parts=parts, environments=(entry,)))
        run = client.post("/api/v1/environments/local/coins/versions/1.0.0/runs", json=PARAMS).json()["key"]
    shutil.copytree(first.data / "blobs", tmp_path / "b" / "hub" / "blobs")
    second = HubProcess(tmp_path / "b" / "hub", *options(ports[1]), database=url)
    try:
        with first.client() as at_first, second.client() as at_second:
            ticket = ticket_of(at_first, run)
            assert ticket["playUrl"].startswith(f"{first.url}/at/")
            async with open_agent_endpoint(ticket["playUrl"].replace(first.url, second.url)) as episode:
                assert "heads" in str(episode.prompt[0].content)
                await episode.call("say", side="heads")
                assert episode.ended
            ended = at_second.post(f"/api/v1/runs/{run}/episodes/{ticket['place']}/end", json={})
            assert (ended.status_code, ended.json()["end"]) == (200, "completed")
            lost = ticket_of(at_first, run)["playUrl"].replace(first.url, second.url)
            first.kill()
            while (answer := at_second.post(lost, json={})).status_code == 503:
                assert kind_of(answer) == "HubUnavailable"
                assert float(answer.headers["retry-after"]) > 0
            assert (answer.status_code, kind_of(answer)) == (404, "NotFound")
            again = ticket_of(at_second, run)
            assert again["playUrl"].startswith(f"{second.url}/at/")
            async with open_agent_endpoint(again["playUrl"]) as episode:
                await episode.call("say", side="heads")
                assert episode.ended
    finally:
        second.stop()
        if first.process.poll() is None:
            first.stop()
    assert "Traceback" not in second.log()
