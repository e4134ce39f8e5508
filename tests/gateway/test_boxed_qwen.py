"""Qwen Code in the sandbox of `ludus box`: it plays by its own MCP client, its tokens are exact, its ends are typed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from boxed_agents import QWEN_PROGRAM, failure_of, harness_of_qwen, play_coding
from gateway_play import RecordingEngine, check_exact
from sandboxing import opened
from saying import Saying
from scripted import Script, call
from terminal import running_episodes

from ludus.client import connect
from ludus.gateway import Gateway, GatewayLimits, HarnessEpisode, make_harness
from ludus.rendering import Renderer

suite = pytest.mark.suite("boxed-qwen")
pytestmark = pytest.mark.timeout(180)
Play = Callable[..., Awaitable[HarnessEpisode]]


@pytest.fixture(autouse=True)
async def _needs_bubblewrap() -> None:
    provider = await opened("bubblewrap-rlimits")
    await provider.aclose()


def name_of(tool: str) -> str:
    """The name under which Qwen Code offers a tool of the episode."""
    return f"mcp__ludus__{tool}"


def solve(prompt: str, rng: Any) -> str:
    number = int(re.findall(r"returns a \+ (\d+)", prompt)[-1])
    if "(exit code 0)" in prompt:
        return call(name_of("submit_answer"), answer="")
    command = f"echo 'def f(a): return a + {number}' > answer.py"
    return "I write it." + call(name_of("bash"), command=command)


@pytest.mark.suite("boxed-qwen")
async def test_qwen_code_plays_in_a_sandbox_and_its_tokens_are_exact(tmp_path: Path, renderer: Renderer) -> None:
    await play_coding(harness_of_qwen(), solve, tmp_path, renderer, range(1), 1)


@suite
@pytest.mark.timeout(1500)
async def test_qwen_code_plays_64_episodes_in_sandboxes(tmp_path: Path, renderer: Renderer) -> None:
    await play_coding(harness_of_qwen(), solve, tmp_path, renderer, range(64), 4)


# ── ends ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def play(serve: Any, renderer: Renderer, engine: RecordingEngine) -> AsyncIterator[Play]:
    """`played = await play(script, "--env", "X=1", max_calls=4)`: an episode of `Saying` that Qwen Code has played."""
    async with AsyncExitStack() as stack:
        server = await serve(Saying)
        client = await stack.enter_async_context(connect(server.url))

        async def played(script: Script, *options: str, program: Path = QWEN_PROGRAM, **limits: Any) -> HarnessEpisode:
            engine.script, engine.context = script, 100_000
            harness = make_harness(harness_of_qwen(*options, program=program))
            gateway = await stack.enter_async_context(Gateway(engine, renderer, limits=GatewayLimits(**limits)))
            episode = await client.environment("saying").start(split="train", index=0, seed=7)
            one = HarnessEpisode(episode, gateway, harness, "episode", episode_seconds=120.0)
            await one.play()
            check_exact(one.session, engine)
            return one

        yield played
        assert await asyncio.to_thread(running_episodes, server.url) == 0


def say(prompt: str, rng: Any) -> str:
    return call(name_of("say"), number=0)


def warm(prompt: str, rng: Any) -> str:
    return call(name_of("warm"))


def say_nothing(prompt: str, rng: Any) -> str:
    return ""


@suite
@pytest.mark.parametrize(
    ("option", "why"),
    [("NODE_OPTIONS=--no-such-option", "exit code 9"), ("NODE_OPTIONS=--max-old-space-size=16", "SIGABRT")],
    ids=["bad-configuration", "killed"],
)
async def test_a_crash_of_qwen_code_is_a_named_end(option: str, why: str, play: Play) -> None:
    kind, error, message = failure_of(await play(say, "--env", option))
    assert (kind, error) == ("policy", "HarnessFailed")
    assert why in message


@suite
async def test_another_model_is_a_named_end(play: Play) -> None:
    played = await play(say, "--env", "OPENAI_BASE_URL=https://api.openai.com/v1")
    kind, error, message = failure_of(played)
    assert (kind, error) == ("policy", "HarnessNetworkRefused")
    assert message.startswith("the agent called api.openai.com:443")
    assert played.session.calls == []


@suite
async def test_usage_statistics_that_are_left_on_are_a_named_end(tmp_path: Path, play: Play) -> None:
    program = tmp_path / "chatty.mjs"
    text = QWEN_PROGRAM.read_text()
    assert text.count("usageStatisticsEnabled: false") == 1
    program.write_text(text.replace("usageStatisticsEnabled: false", "usageStatisticsEnabled: true"))
    kind, error, message = failure_of(await play(say, program=program))
    assert (kind, error) == ("policy", "HarnessNetworkRefused")
    assert "aliyuncs.com:443" in message


@suite
async def test_qwen_code_that_repeats_its_request_loops(play: Play) -> None:
    kind, error, message = failure_of(await play(say_nothing, max_calls=4))
    assert (kind, error) == ("policy", "HarnessFailed")
    assert "the same conversation 4 times" in message


@suite
@pytest.mark.parametrize(
    ("script", "stopped", "value"),
    [(warm, "final_message", 1.0), (say_nothing, None, 0.5)],
    ids=["one-call-again-and-again", "no-reply"],
)
async def test_what_the_policy_causes_is_no_crash_of_qwen_code(
    script: Script, stopped: str | None, value: float, play: Play
) -> None:
    trajectory = (await play(script)).trajectory()
    assert (trajectory.failure, trajectory.stopped, trajectory.value) == (None, stopped, value)


@suite
async def test_a_limit_on_model_calls_truncates_qwen_code(play: Play, engine: RecordingEngine) -> None:
    trajectory = (await play(warm, max_calls=2)).trajectory()
    assert (trajectory.failure, trajectory.stopped, trajectory.value) == (None, "turn_limit", 0.5)
    first, _ = engine.seen[0]
    assert engine.tokenizer.decode(first).count("The number is 0.") == 2  # the prompt, and the MCP instructions


@suite
@pytest.mark.parametrize(
    "text", ["x" * 100, '<tool_call>{"name": "mcp__ludus__say", "argum</tool_call>'], ids=["cut-off", "malformed"]
)
async def test_a_reply_that_qwen_code_cannot_use_is_asked_for_again_in_a_new_sample(text: str, play: Play) -> None:
    played = await play(lambda prompt, rng: text, max_calls=2, max_tokens=50)
    assert [call.sample for call in played.session.calls] == [0, 1]
    assert played.session.calls[0].start == played.session.calls[1].start
