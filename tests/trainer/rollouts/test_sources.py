"""Environments of a run: what is found wrong at the beginning, servers that come and go, which tasks are played."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cutting import CuttingProxy
from saying import Broken, Number, Saying
from scripted import Playing, ScriptedEngine, call, guess, make_config, playing
from waiting import accepts, wait_until
from worlds import Playground

from ludus.rendering import Renderer
from ludus.server import Environment
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import ConfigError, RolloutError
from ludus.trainer.core.samples import RolloutStatus
from ludus.trainer.rollouts.sampler import open_source

SAYING = Path(__file__).parents[2] / "support" / "saying.py"


class Bare(Environment[Number]):
    """Tasks may have tools here, but do not."""

    splits = Saying.splits

    def prompt(self) -> str:
        return "Sit."

    def task_tools(self) -> list[Any]:
        return []


class Compared(Saying):
    """Scores its groups."""

    @classmethod
    def score_group(cls, task: Number, candidates: Sequence[Any]) -> list[float]:
        return [0.0 for _ in candidates]


async def refusal(config: TrainConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        async with open_source(config):
            pass
    return str(caught.value)


def token_with(path: Path, *scopes: str) -> str:
    token, record = new_token("t", scopes)
    write_token_file(path, TokenFile(tokens=(record,)))
    return token


@pytest.mark.suite("training")
async def test_a_server_that_is_not_there_is_named_before_anything_is_played(unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    message = await refusal(make_config(environments=[{"url": url, "wire": "channel"}]))
    assert url in message
    assert "is the server running?" in message
    assert url in await refusal(make_config(url))


async def test_what_is_missing_is_named_before_anything_is_played(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    two, one, bare = await serve(Saying, Playground), await serve(Saying), await serve(Bare)
    test = {"split": "test"}
    for entry, parts in [
        ({"url": two.url}, ["'saying', 'playground'", "`name`"]),
        ({"url": two.url, "name": "nosuch"}, ["'nosuch'", "'saying', 'playground'"]),
        ({"url": one.url, "split": "tran"}, ["'tran'", "'train', 'hard', 'test'"]),
        ({"url": one.url, "stages": [{"split": "train"}, {"split": "harder"}]}, ["'harder'"]),
        ({"url": one.url, "token_variable": "NO_SUCH_TOKEN"}, ["NO_SUCH_TOKEN", "not set"]),
        ({"url": one.url, "secrets": {"key": "NO_SUCH_SECRET"}}, ["'key'", "NO_SUCH_SECRET"]),
        ({"url": "ftp://example"}, ["ftp://example"]),
        ({"url": bare.url}, ["no tools"]),
    ]:
        message = await refusal(make_config(environments=[entry], evaluation=test))
        for part in parts:
            assert part in message, (entry, message)
    message = await refusal(make_config(one.url, evaluation={"split": "exam"}))
    assert "'exam' (`evaluation.split`)" in message
    assert "`label`" in await refusal(make_config(one.url, one.url))


async def test_a_token_without_a_scope_is_found_out_at_the_beginning(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokens.json"
    for scopes, missing in [
        (("tasks:read", "episodes:run", "rewards:read"), "splits:test"),
        (("tasks:read", "episodes:run", "splits:test"), "rewards:read"),
        (("tasks:read", "rewards:read", "splits:test"), "episodes:run"),
    ]:
        monkeypatch.setenv("THE_TOKEN", token_with(file, *scopes))
        server = await serve(Saying, token_file=file)
        message = await refusal(make_config(environments=[{"url": server.url, "token_variable": "THE_TOKEN"}]))
        assert missing in message
        assert server.app.context.host.stats().running == 0
    monkeypatch.setenv("THE_TOKEN", "ludus_wrong")
    message = await refusal(make_config(environments=[{"url": server.url, "token_variable": "THE_TOKEN"}]))
    assert "token" in message


async def test_a_request_that_is_refused_in_mid_run_stops_it_at_once(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    async with playing(make_config(server.url), engine, renderer) as run:
        run.sync(0)
        await run.collector.batch()
        catalog = server.app.context.host.catalog
        catalog._published["else"] = catalog._published.pop("saying")
        run.sync(1)
        with pytest.raises(RolloutError, match="environment 'saying' at http.* refuses: .*saying"):
            await run.collector.batch()


async def test_one_setup_that_fails_at_the_beginning_does_not_stop_the_run(serve: Any) -> None:
    server = await serve(Broken)
    async with open_source(make_config(server.url)) as source:
        assert [environment.label for environment in source.environments] == ["broken"]


async def test_the_run_says_that_it_does_not_ask_for_the_scores_of_groups(serve: Any) -> None:
    server = await serve(Saying, Compared)
    entries = [{"url": server.url, "name": name} for name in ("saying", "compared")]
    async with open_source(make_config(environments=entries)) as source:
        (remark,) = source.remarks
    assert "compared" in remark
    assert "groups/score" in remark


async def test_entries_of_one_server_share_its_connection(serve: Any) -> None:
    server = await serve(Saying, Playground)
    entries = [{"url": server.url, "name": name} for name in ("saying", "playground")]
    async with open_source(make_config(environments=entries)) as source:
        first, second = source.environments
        assert first.remote._session is second.remote._session


# ── servers that come and go ────────────────────────────────────────────────────────────────────────────────────────


class Line(CuttingProxy):
    """A connection to a server that can be taken away."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.tried = asyncio.Semaphore(0)
        """Released by each attempt at a connection while it is away."""

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """The server cannot be reached."""
        self.refusing = True
        self.cut()
        try:
            yield
        finally:
            self.refusing = False

    def lead_to(self, target: str) -> None:
        """Lead to another server from now on."""
        self._port = int(target.rsplit(":", 1)[1])
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            self.tried.release()
        await super()._serve(reader, writer)


@pytest.mark.parametrize("wire", ["channel", "ors"])
async def test_a_server_that_comes_back_in_time_is_played_on(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, wire: str
) -> None:
    server = await serve(Saying)
    proxy = Line(server.url)
    async with proxy.running():
        config = make_config(environments=[{"url": proxy.url, "wire": wire}], retries=2)
        async with playing(config, engine, renderer, outage_seconds=20) as run:
            run.sync(0)
            await run.collector.batch()
            async with proxy.away(), asyncio.timeout(30):
                run.sync(1)
                for _ in range(3):
                    await proxy.tried.acquire()
            groups, _ = await run.collector.batch()
            assert [len(group.scored) for group in groups] == [4, 4]


async def test_a_server_that_stays_away_stops_the_run_and_is_named(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    proxy = Line(server.url)
    async with proxy.running():
        async with playing(make_config(proxy.url, retries=2), engine, renderer, outage_seconds=1) as run:
            run.sync(0)
            await run.collector.batch()
            async with proxy.away():
                run.sync(1)
                with pytest.raises(RolloutError, match=f"'saying' at {proxy.url} cannot be reached any more"):
                    await run.collector.batch()


async def test_a_restarted_server_that_has_forgotten_its_episodes_is_played_on(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    first, second = await serve(Saying), await serve(Saying)
    waiting = asyncio.Event()
    came_back = asyncio.Event()

    async def pause(text: str) -> str:
        waiting.set()
        await came_back.wait()
        return text

    proxy = Line(first.url)
    async with proxy.running():
        config = make_config(proxy.url, retries=2)
        async with playing(config, engine, renderer, outage_seconds=20) as run:
            run.sync(0)
            await run.collector.batch()
            engine.script = lambda prompt, rng: pause(guess(prompt, rng))
            run.sync(1)
            await waiting.wait()
            proxy.lead_to(second.url)
            came_back.set()
            groups, _ = await run.collector.batch()
    assert [len(group.scored) for group in groups] == [4, 4]
    lost = [r for group in groups for r in group.rollouts if r.reward is None]
    assert {r.trajectory.failure and r.trajectory.failure.error for r in lost} == {"EpisodeNotFound"}


def serve_in_a_process(port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ludus.cli", "serve", f"{SAYING}:Saying", "--port", str(port)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.timeout(120)
async def test_a_server_killed_in_mid_run_and_started_again_is_played_on(
    engine: ScriptedEngine, renderer: Renderer, unused_tcp_port: int
) -> None:
    waiting, killed = asyncio.Event(), asyncio.Event()
    server = serve_in_a_process(unused_tcp_port)
    try:
        await wait_until(lambda: accepts(unused_tcp_port))

        async def pause(text: str) -> str:
            waiting.set()
            await killed.wait()
            return text

        engine.script = lambda prompt, rng: pause(guess(prompt, rng))
        config = make_config(f"http://127.0.0.1:{unused_tcp_port}", retries=2)
        async with playing(config, engine, renderer) as run:
            run.sync(0)
            await waiting.wait()
            server.kill()
            server.wait()
            killed.set()
            server = serve_in_a_process(unused_tcp_port)
            groups, _ = await run.collector.batch()
        assert [len(group.scored) for group in groups] == [4, 4]
        assert any(rollout.status is RolloutStatus.FAILED for group in groups for rollout in group.rollouts)
    finally:
        server.kill()
        server.wait()


async def test_a_full_server_is_waited_for(serve: Any, engine: ScriptedEngine, renderer: Renderer) -> None:
    from ludus.server import ServerLimits

    server = await serve(Saying, limits=ServerLimits(max_episodes=2, max_queue=1, queue_seconds=0.2, grace_seconds=0.5))
    async with playing(make_config(server.url, groups=1), engine, renderer) as run:
        run.sync(0)
        (group,), metrics = await run.collector.batch()
    assert len(group.scored) == 4
    assert metrics["rollout/failed"] == 0


# ── which tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def batches(run: Playing, count: int, first: int = 0) -> list[Any]:
    groups = []
    for version in range(first, first + count):
        run.sync(version)
        groups += (await run.collector.batch())[0]
    return groups


async def test_stages_follow_each_other_when_episodes_succeed(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    stages = [{"split": "train", "until": 0.9, "window": 16}, {"split": "hard"}]
    skill = {"share": 0.0}

    def script(prompt: str, rng: Any) -> str:
        target = int(prompt.split("number is ")[1][0])
        return call("say", number=target if rng.random() < skill["share"] else 9)

    engine.script = script
    config = make_config(environments=[{"url": server.url, "stages": stages}], drop_zero_variance=False)
    async with playing(config, engine, renderer) as run:
        easy = await batches(run, 3)
        skill["share"] = 1.0
        easy += await batches(run, 2, 3)
        state = run.collector.state()
        hard = await batches(run, 2, 5)
    assert all(group.task.startswith("n-") for group in easy)
    assert all(group.task.startswith("h-") for group in hard)
    async with playing(config, engine, renderer, state) as run:
        again = await batches(run, 1, 5)
    assert [group.task for group in again] == [group.task for group in hard[:2]]


def uneven(prompt: str, rng: Any) -> str:
    """Tasks of target 0 are always won, of 1 sometimes, others never."""
    target = int(prompt.split("number is ")[1][0])
    won = {0: True, 1: rng.random() < 0.5}.get(target, False)
    return call("say", number=target if won else 9)


async def test_a_curriculum_prefers_tasks_that_are_sometimes_won(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = uneven
    entry = {"url": server.url, "curriculum": {"low": 0.2, "high": 0.8, "explore": 0.3}}
    config = make_config(environments=[entry], drop_zero_variance=False, groups=8)
    async with playing(config, engine, renderer) as run:
        await batches(run, 5)
        late = await batches(run, 5, 5)
    targets = Counter(int(group.task[2:]) % 4 for group in late)
    assert targets[1] >= 0.6 * sum(targets.values())
    assert set(targets) - {1}


async def test_a_server_that_forgot_its_outcomes_gets_them_again(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    engine.script = uneven
    first, second = await serve(Saying), await serve(Saying)
    curriculum = {"low": 0.2, "high": 0.8, "explore": 0.3}

    def config(url: str) -> TrainConfig:
        return make_config(environments=[{"url": url, "curriculum": curriculum}], drop_zero_variance=False, groups=8)

    def known(server: Any) -> Any:
        (published,) = server.app.context.host.catalog._published.values()
        return published.curricula["train"]._counts

    async with playing(config(first.url), engine, renderer) as run:
        await batches(run, 3)
        state = run.collector.state()
        then = await batches(run, 1, 3)
    assert sum(tries for tries, _ in known(first).values()) == 3 * 8 * 4
    async with playing(config(second.url), engine, renderer, state) as run:
        again = await batches(run, 1, 3)
    assert [group.task for group in again] == [group.task for group in then]
    assert known(second) == known(first)
