"""Our client plays on servers that other people's SDKs made."""

from __future__ import annotations

import pytest

from ludus.client import connect
from ludus.client.transports import ors
from ludus.protocol import EndReason, EpisodeLimits, text_of
from ludus.protocol.episodes import StepParams
from ludus.protocol.errors import EnvironmentFailed, EnvironmentNotFound, EpisodeEnded, SplitNotFound, Unsupported
from ludus.protocol.methods import STEP

PeerServer = tuple[str, str]


@pytest.mark.suite("peers", first=1)
async def test_a_whole_episode_on_a_peers_server(peer_server: PeerServer) -> None:
    _, url = peer_server
    async with connect(url, wire="ors") as client:
        async with client.environment("adder").episode(split="train", index=2) as episode:
            assert text_of(episode.prompt[0].content) == "What is 2 + 3?"
            assert episode.task.fields == {"a": 2, "b": 3}
            assert {tool.name for tool in episode.tools} == {"add", "submit", "secret", "long", "broken"}
            step = await episode.call("add", a=2, b=3)
            assert (text_of(step.content), step.reward and step.reward.value) == ("5", 0.1)
            assert step.metadata == {"calls": 1}
            last = await episode.call("submit", value=5)
            assert last.end_reason is EndReason.COMPLETED
            log = await episode.rewards()
            assert [entry.reward.value for entry in log.entries] == [0.1, 1.0]
            assert log.total.value == pytest.approx(1.1)
            with pytest.raises(EpisodeEnded):
                await episode.call("add", a=1, b=1)


@pytest.mark.suite("peers", first=1)
async def test_environments_splits_and_tasks_of_a_peer(peer_server: PeerServer) -> None:
    _, url = peer_server
    async with connect(url, wire="ors") as client:
        names = {info.name: info for info in await client.environments()}
        assert set(names) == {"adder", "echo"}
        splits = {split.name: (split.type, split.count) for split in names["adder"].splits}
        assert splits == {"train": ("train", 5), "eval": ("validation", 2)}
        adder = client.environment("adder")
        assert [row.id async for row in adder.tasks("train")] == [f"train-{n}" for n in range(5)]
        async with adder.episode(split="eval", task="eval-1") as episode:
            assert episode.task.index == 1


async def test_mistakes_of_the_policy_are_observations(peer_server: PeerServer) -> None:
    _, url = peer_server
    async with connect(url, wire="ors") as client, client.environment("adder").episode(split="train", index=0) as one:
        codes = [
            (await one.call("nosuch")).error,
            (await one.call("add", a="x")).error,
        ]
        assert [error and error.code for error in codes] == ["unknown_tool", "invalid_arguments"]
        assert text_of((await one.call("add", a=1, b=1)).content) == "2"


async def test_steps_of_other_episodes_do_not_make_the_client_forget_a_key(
    peer_server: PeerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ors, "_KEPT", 3)
    _, url = peer_server
    async with connect(url, wire="ors") as client:
        adder = client.environment("adder")
        async with adder.episode(split="train", index=0) as one, adder.episode(split="train", index=1) as other:
            params = StepParams(episode=one.id, step=1, key="k", tool="add", arguments={"a": 1, "b": 1})
            first = await adder._wire.request(STEP, params)
            for _ in range(5):
                await other.call("add", a=2, b=2)
            assert await adder._wire.request(STEP, params) is first


async def test_a_tool_that_raises_fails_the_episode(peer_server: PeerServer) -> None:
    _, url = peer_server
    async with connect(url, wire="ors") as client, client.environment("adder").episode(split="train", index=0) as one:
        with pytest.raises(EnvironmentFailed, match="kaboom\nline two"):
            await one.call("broken")
        assert (await one.rewards()).total.value is None


async def test_long_texts_arrive_whole(peer_server: PeerServer) -> None:
    _, url = peer_server
    async with connect(url, wire="ors") as client, client.environment("adder").episode(split="train", index=0) as one:
        for count in (1, 700, 1023, 5000):
            assert text_of((await one.call("long", value=count)).content) == "ab  c\u3000" * count


async def test_secrets_reach_either_server(peer_server: PeerServer) -> None:
    _, url = peer_server
    async with connect(url, wire="ors") as client:
        adder = client.environment("adder")
        async with adder.episode(split="train", index=0, secrets={"token": "s3cret"}) as episode:
            assert text_of((await episode.call("secret")).content) == "token=s3cret"


async def test_groups_and_step_limits_are_kept_on_this_side(peer_server: PeerServer) -> None:
    _, url = peer_server
    async with connect(url, wire="ors") as client:
        adder = client.environment("adder")
        async with adder.group(3, split="train", index=1, limits=EpisodeLimits(max_steps=2)) as group:
            assert len({episode.id for episode in group}) == 3
            assert (await group[0].call("add", a=1, b=1)).end_reason is None
            assert (await group[0].call("add", a=1, b=1)).end_reason is EndReason.STEP_LIMIT
            with pytest.raises(EpisodeEnded):
                await group[0].call("add", a=1, b=1)
            assert (await group[1].call("submit", value=3)).end_reason is EndReason.COMPLETED


async def test_what_ors_cannot_do_is_said(peer_server: PeerServer) -> None:
    _, url = peer_server
    async with connect(url, wire="ors") as client:
        adder = client.environment("adder")
        with pytest.raises(Unsupported, match="seed"):
            await adder.start(split="train", index=0, seed=1)
        with pytest.raises(SplitNotFound):
            await adder.start(split="nosuch", index=0)
        with pytest.raises(EnvironmentNotFound):
            await client.environment("nosuch").start(split="train", index=0)
        async with adder.episode(split="train", index=0) as episode:
            with pytest.raises(Unsupported):
                await episode.fork()
