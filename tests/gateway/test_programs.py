"""The agent programs of `ludus harness` play in their sandboxes: exact tokens, one sample, and ends that are scored."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from boxed_agents import CODING
from gateway_play import check_exact
from program_play import MCP_PROGRAMS, PROGRAMS, SHELLS, called, guesser, play, require, shared_prefix
from sandboxing import opened
from scripted import call
from serving import served

from ludus.harnesses import NAMES
from ludus.rendering import Renderer
from ludus.trainer import quickstart

pytestmark = [pytest.mark.suite("harnesses"), pytest.mark.timeout(400)]
GUESS = "guess_number-tiny"


@pytest.fixture(autouse=True)
async def _installed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A skip unless bubblewrap and the program are installed."""
    monkeypatch.setenv("LUDUS_HARNESSES", str(PROGRAMS))
    require(name)
    provider = await opened("bubblewrap-rlimits")
    await provider.aclose()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a server with `guess_number`."""
    with quickstart.serving("guess_number") as url:
        yield url


@pytest.mark.parametrize("name", NAMES)
async def test_a_program_plays_in_one_sample_of_exactly_the_sampled_tokens(
    name: str, server: str, renderer: Renderer
) -> None:
    prompts = []
    for _ in range(2):
        played = await play(server, name, guesser(name), renderer, GUESS, 1)
        trajectory = played.episode.trajectory()
        assert (trajectory.failure, trajectory.end_reason, trajectory.stopped) == (None, "completed", None)
        assert trajectory.value in (0.0, 1.0)
        check_exact(played.episode.session, played.engine)
        assert len(played.episode.session.samples) == 1
        prompts.append(played.engine.seen[0][0])
    assert shared_prefix(prompts) >= 0.95  # so the engine reads the prompt of a group once


@pytest.mark.parametrize("name", MCP_PROGRAMS)
async def test_a_program_offers_its_own_tools_only_if_it_may(name: str, server: str, renderer: Renderer) -> None:
    bare = await play(server, name, guesser(name), renderer, GUESS, 2)
    full = await play(server, f"{name} --own-tools", guesser(name), renderer, GUESS, 2)
    for played in (bare, full):
        assert played.episode.trajectory().failure is None
        check_exact(played.episode.session, played.engine)
    assert len(full.prompt) > len(bare.prompt)
    assert not re.search(r"^(bash|run_shell_command|run_commands|terminal|exec_command)\(", bare.prompt, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
async def test_a_program_works_in_the_sandbox_of_the_episode(name: str, tmp_path: Path, renderer: Renderer) -> None:
    world = tmp_path / "world.py"
    world.write_text(CODING)

    def solve(prompt: str, rng: random.Random) -> str:
        number = int(re.findall(r"returns a \+ (\d+)", prompt)[-1])
        if "(exit code 0)" not in prompt:
            command = f'echo "def f(a): return a + {number}" > answer.py'
            return called(name, prompt, "bash", command=command)
        if name == "mini-swe-agent":
            return called(name, prompt, "bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
        return called(name, prompt, "submit_answer", answer="")

    async with served(world, {}) as running:
        played = await play(running.url, name, solve, renderer, "coding", 3)
    trajectory = played.episode.trajectory()
    assert (trajectory.failure, trajectory.end_reason, trajectory.value) == (None, "submitted", 1.0)
    check_exact(played.episode.session, played.engine)
    assert len(played.episode.session.samples) == 1


@pytest.mark.parametrize("kind", ["cut", "empty", "text"])
@pytest.mark.parametrize("name", NAMES)
async def test_what_the_policy_says_is_never_a_failure_of_the_program(
    kind: str, name: str, server: str, renderer: Renderer
) -> None:
    guess, bad = guesser(name), {"cut": "x" * 5000, "empty": "", "text": "I give up."}[kind]
    calls = 0

    def stop_after_one_guess(prompt: str, rng: random.Random) -> str:
        nonlocal calls
        calls += 1
        reply = guess(prompt, rng) if calls == 1 else bad
        assert isinstance(reply, str)
        return reply

    played = await play(server, name, stop_after_one_guess, renderer, GUESS, 0, max_tokens=1000)
    trajectory = played.episode.trajectory()
    assert (trajectory.failure, trajectory.value) == (None, 0.0)
    check_exact(played.episode.session, played.engine)


@pytest.mark.parametrize("name", SHELLS)
async def test_a_policy_that_kills_its_program_keeps_what_it_has_earned(
    name: str, server: str, renderer: Renderer
) -> None:
    guess, (shell, arguments) = guesser(name), SHELLS[name]
    calls = 0

    def kill_after_one_guess(prompt: str, rng: random.Random) -> str:
        nonlocal calls
        calls += 1
        reply = guess(prompt, rng) if calls == 1 else call(shell, **arguments) if calls == 2 else "I give up."
        assert isinstance(reply, str)
        return reply

    played = await play(server, f"{name} --own-tools", kill_after_one_guess, renderer, GUESS, 0)
    trajectory = played.episode.trajectory()
    assert calls >= 2
    assert (trajectory.failure, trajectory.value) == (None, 0.0)
    check_exact(played.episode.session, played.engine)
