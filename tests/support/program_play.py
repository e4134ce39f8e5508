"""Agent programs of `ludus harness` that play episodes with scripted policies."""

from __future__ import annotations

import itertools
import json
import random
import re
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from gateway_play import RecordingEngine
from peer_clients import ROOT
from scripted import Script, call

from ludus.client import connect
from ludus.gateway import Gateway, GatewayLimits, HarnessEpisode, make_harness
from ludus.harnesses import NAMES, NotInstalled, find_program, installed_folder
from ludus.rendering import Renderer

PROGRAMS = ROOT / ".peers" / "harnesses"
"""Where scripts/peers.py installs them."""
CONTEXT = 400_000
"""Tokens of a context: the tests' tokenizer needs one for each letter."""
RETRIES = 2
_RANGE = re.compile(r"from (\d+) to (\d+)")


@dataclass(frozen=True, slots=True)
class Played:
    """An episode that a program has played."""

    episode: HarnessEpisode
    engine: RecordingEngine
    seconds: float
    cpu_seconds: float
    """Of the program and all that it started; right only while no other child process of this one ends."""

    @property
    def prompt(self) -> str:
        """The first prompt as text."""
        return str(self.engine.tokenizer.decode(self.engine.seen[0][0]))


def require(name: str) -> None:
    """Skip if a program is not installed."""
    try:
        installed_folder(find_program(name))
    except NotInstalled as error:
        pytest.skip(f"{error} (here: python scripts/peers.py harnesses/{name})")


def called(name: str, prompt: str, tool: str, **arguments: Any) -> str:
    """A call of a tool of the episode, in the way in which the program offers it."""
    if find_program(name).bridge:
        remote = tool == "bash" and name == "mini-swe-agent"
        command = arguments["command"] if remote else f"tool {tool} '{json.dumps(arguments)}'"
        return f"I try.\n```bash\n{command}\n```\n" if name == "aider" else call("bash", command=command)
    names = re.findall(rf"^([\w-]*\b{tool}|\w+_{tool})\(", prompt, re.MULTILINE)
    return call(names[0], **arguments) if names else f"There is no {tool}."


def guesser(name: str) -> Script:
    """A policy for guess_number that guesses at random."""

    def guess(prompt: str, rng: random.Random) -> str:
        low, high = map(int, _RANGE.findall(prompt)[-1])
        return called(name, prompt, "guess", number=rng.randint(low, high))

    return guess


async def play(
    server: str, harness_text: str, script: Script, renderer: Renderer, environment: str, index: int, **limits: Any
) -> Played:
    """Play an episode: `limits` are those of the gateway.

    On a busy machine OpenCode may ask its model before it has the tools of the episode. That is a failure, after which
    the episode is played again, as `ludus train` does.
    """
    for attempt in itertools.count(1):
        played = await _play(server, harness_text, script, renderer, environment, index, **limits)
        failure = played.episode.trajectory().failure
        if attempt > RETRIES or failure is None or "none of the episode's" not in failure.message:
            return played
    raise AssertionError  # the loop has no end


async def _play(
    server: str, harness_text: str, script: Script, renderer: Renderer, environment: str, index: int, **limits: Any
) -> Played:
    harness = make_harness(harness_text)
    engine = RecordingEngine(renderer.tokenizer, script, context=CONTEXT)
    bounds = replace(GatewayLimits(max_calls=20, context=CONTEXT), **limits)
    try:
        async with connect(server) as client, Gateway(engine, renderer, limits=bounds) as gateway:
            episode = await client.environment(environment).start(split="train", index=index, seed=index)
            played = HarnessEpisode(episode, gateway, harness, "episode", seed=index, episode_seconds=150.0)
            began, before = time.perf_counter(), _cpu_seconds()
            await played.play()
            return Played(played, engine, time.perf_counter() - began, _cpu_seconds() - before)
    finally:
        await harness.aclose()


def _cpu_seconds() -> float:
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def shared_prefix(prompts: Sequence[Sequence[int]]) -> float:
    """The share of the longest prompt that all have at their start."""
    same = itertools.takewhile(lambda tokens: len(set(tokens)) == 1, zip(*prompts, strict=False))
    return sum(1 for _ in same) / max(map(len, prompts))


KILL = "kill -9 $PPID"
SHELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "claude-code": ("Bash", {"command": KILL, "description": "Stop."}),
    "cline": ("run_commands", {"commands": [KILL]}),
    "codex": ("exec_command", {"cmd": KILL}),
    "continue": ("Bash", {"command": KILL}),
    "copilot": ("bash", {"command": KILL, "description": "Stop."}),
    "gemini-cli": ("run_shell_command", {"command": KILL, "description": "Stop."}),
    "hermes": ("terminal", {"command": KILL}),
    "opencode": ("bash", {"command": KILL, "description": "Stop."}),
    "openhands": ("terminal", {"command": KILL, "summary": "Stop.", "security_risk": "LOW"}),
    "pi": ("bash", {"command": KILL}),
    "qwen-code": ("run_shell_command", {"command": KILL, "is_background": False, "description": "Stop."}),
}
"""How each program's own shell is called with a command that ends the program."""
MCP_PROGRAMS = tuple(name for name in NAMES if not find_program(name).bridge)
