"""Played runs on real endpoints: what a player with a token of the hub can reach of them, and a hub that is killed."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from ludus.client import connect
from ludus.client._params import make
from ludus.client.agent_endpoint import open_agent_endpoint
from ludus.protocol.episodes import CloseParams, ForkParams, GetEpisodeParams, GradeParams, RewardsParams, StepParams
from ludus.protocol.errors import EpisodeNotFound, LudusError
from ludus.protocol.methods import CLOSE, FORK, GET_EPISODE, GRADE, REWARDS, STEP
from ludus.server.auth import TokenStore
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

pytestmark = pytest.mark.timeout(120)

PARAMS = {"environment": "counter", "split": "train", "tasks": 1, "declared": {"model": "m"}}
WIRES: tuple[Literal["channel", "mcp"], ...] = ("channel", "mcp")
EVERYTHING = ("tasks:read", "episodes:run", "rewards:read", "splits:*")


def episode_in(play_url: str) -> str:
    """Return the id of the episode that a play URL holds, as anyone can read it."""
    capability = play_url.partition("/play/")[2].partition("/")[0].rpartition(".")[2].removeprefix("play_")
    data = base64.urlsafe_b64decode(capability + "=" * (-len(capability) % 4))
    return data[8 + 16 + 4 + 8 + 20 :].decode()


async def test_a_player_with_all_rights_reaches_an_episode_of_its_run_at_the_play_url_only(
    start_hub: Any, tmp_path: Path
) -> None:
    made = {name: new_token(name, EVERYTHING if name == "alice" else ("admin",)) for name in ("alice", "root")}
    write_token_file(tmp_path / "tokens.json", TokenFile(tokens=tuple(record for _, record in made.values())))
    hub = await start_hub(tokens=TokenStore.from_environment(tmp_path / "tokens.json", {}))
    await hub.publish()
    headers = {"authorization": f"Bearer {made['alice'][0]}"}
    async with httpx.AsyncClient(base_url=f"{hub.url}/api/v1", headers=headers, timeout=60) as client:
        run = (await client.post("/environments/ada/counter/versions/1.0.0/runs", json=PARAMS)).json()["key"]
        ticket = (await client.post(f"/runs/{run}/episodes")).json()["ticket"]
        assert ticket["playUrl"].startswith(hub.address(version="1.0.0") + "/play/")
        episode = episode_in(ticket["playUrl"])
        key = "a" * 20
        for token, _ in made.values():
            for wire in WIRES:
                async with connect(hub.address(version="1.0.0"), token=token, wire=wire) as other:
                    request: Any = other._session.wire.request
                    own = await other.environment("counter").start(index=0)
                    assert (await own.call("add", number=1)).reward is not None
                    for method, params in (
                        (GET_EPISODE, make(GetEpisodeParams, episode=episode)),
                        (REWARDS, make(RewardsParams, episode=episode)),
                        (CLOSE, make(CloseParams, episode=episode)),
                        (FORK, make(ForkParams, episode=episode, key=key)),
                        (GRADE, make(GradeParams, episode=episode, answer="", key=key)),
                        (STEP, make(StepParams, episode=episode, step=1, tool="add", arguments={"number": 9}, key=key)),
                    ):
                        with pytest.raises(EpisodeNotFound):
                            await request(method, params)
        async with open_agent_endpoint(ticket["playUrl"]) as agent:
            result = await agent.call("add", number=3)
            assert result.reward is None
        assert (await client.post(f"/runs/{run}/episodes/{ticket['place']}/end", json={})).json()["end"] == "closed"
        rows = (await client.get(f"/runs/{run}/rows")).json()["episodes"]
    assert [(row["reward"], row["value"], row["end"]) for row in rows] == [(3.0, 0.0, "closed")]


@pytest.mark.suite("hub-endpoints")
async def test_an_endpoint_that_dies_under_a_run_costs_no_episode(start_hub: Any) -> None:
    hub = await start_hub()
    await hub.publish()
    async with httpx.AsyncClient(base_url=f"{hub.url}/api/v1", timeout=90) as client:
        run = (await client.post("/environments/ada/counter/versions/1.0.0/runs", json=PARAMS)).json()["key"]
        ticket = (await client.post(f"/runs/{run}/episodes")).json()["ticket"]
        async with open_agent_endpoint(ticket["playUrl"], reconnect_seconds=0.1) as agent:
            with pytest.raises(LudusError):
                await agent.call("run", code="import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        assert (await client.post(f"/runs/{run}/episodes/{ticket['place']}/end", json={})).json()["end"] is None
        again = (await client.post(f"/runs/{run}/episodes")).json()["ticket"]
        assert again["place"] == ticket["place"]
        info = (await client.get(f"/runs/{run}")).json()
    assert (info["state"], info["reruns"]) == ("open", 1)
