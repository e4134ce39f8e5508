"""Episodes that our own client plays with scripted actions, for others' clients to play again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Iterable
from typing import Any

from ludus.client import Client, Episode, connect, text_of

Script = Generator[dict[str, Any], str, None]
"""Yields actions, `{"tool", "arguments"}` or `{"answer"}`, and gets the observation of each as text."""

Chooser = Callable[[dict[str, Any], random.Random], Script]
"""Makes the script of an episode from the public fields of its task."""


def guesses(fields: dict[str, Any], rng: random.Random) -> Script:
    """Play guess_number: by halving or at random, with calls that are refused in between."""
    low, high = fields["low"], fields["high"]
    halving = rng.random() < 0.6
    yield {"tool": "guess", "arguments": {"number": "many"}}
    yield {"tool": "gues", "arguments": {}}
    while True:
        number = (low + high) // 2 if halving else rng.randint(fields["low"] - 1, fields["high"])
        text = yield {"tool": "guess", "arguments": {"number": number}}
        if "higher" in text:
            low = number + 1
        elif "lower" in text:
            high = number - 1


def refusals(fields: dict[str, Any], rng: random.Random) -> Script:
    """Guess outside the range until the limit of steps ends the episode."""
    while True:
        yield {"tool": "guess", "arguments": {"number": fields["low"] - 1}}


def sums(fields: dict[str, Any], rng: random.Random) -> Script:
    """Play the sums of `adapter_world`: add, then say or submit a right or a wrong number."""
    yield {"tool": "add", "arguments": {"a": fields["a"], "b": fields["b"]}}
    number = fields["a"] + fields["b"] + (rng.random() < 0.3)
    yield {"answer": f"It is {number}."} if rng.random() < 0.5 else {"tool": "submit", "arguments": {"number": number}}


async def recorded(
    url: str, environment: str, chooser: Chooser, seeds: Iterable[int], indices: Iterable[int] | None = None
) -> list[dict[str, Any]]:
    """Play one episode for each seed, and return what our client saw; the seed draws the task if no index is given."""
    async with connect(url) as client:
        chosen = zip(seeds, indices, strict=True) if indices is not None else ((seed, None) for seed in seeds)
        return [await _one(client, environment, chooser, seed, index) for seed, index in chosen]


async def _one(client: Client, environment: str, chooser: Chooser, seed: int, index: int | None) -> dict[str, Any]:
    async with client.environment(environment).episode(seed=seed, index=index) as episode:
        script = chooser(episode.task.fields, random.Random(f"{seed} {index}"))
        steps: list[dict[str, Any]] = []
        action = next(script)
        while True:
            steps.append({"action": action, **await _step(episode, action)})
            if steps[-1]["end_reason"] is not None:
                break
            action = script.send(steps[-1]["text"])
        total = (await episode.close()).reward
        assert total is not None
        return {
            "seed": seed,
            "task": episode.task.id,
            "index": episode.task.index,
            "split": episode.task.split,
            "prompt": "\n\n".join(text_of(message.content) for message in episode.prompt),
            "steps": steps,
            "value": total.value,
        }


async def _step(episode: Episode, action: dict[str, Any]) -> dict[str, Any]:
    if "answer" in action:
        graded = await episode.grade(action["answer"])
        end, reward, text, error = graded.info, graded.reward, "", None
    else:
        result = await episode.call(action["tool"], **action["arguments"])
        end, reward, text = result, result.reward, text_of(result.content)  # type: ignore[assignment]
        error = result.error.code if result.error else None
    return {
        "text": text,
        "reward": reward.value if reward is not None else None,
        "error": error,
        "terminated": end.terminated,
        "truncated": end.truncated,
        "end_reason": end.end_reason,
    }


def differences(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], fields: Iterable[str]) -> list[str]:
    """Return what differs: prompts and, of each step, `fields`, and sums of rewards that are not the total."""
    found = [f"{len(ours)} and {len(theirs)} episodes"] if len(ours) != len(theirs) else []
    for mine, other in zip(ours, theirs, strict=False):
        name = f"seed {mine['seed']}"
        if mine["prompt"] != other["prompt"]:
            found.append(f"{name}: prompt {other['prompt']!r}")
        if len(mine["steps"]) != len(other["steps"]):
            found.append(f"{name}: {len(other['steps'])} steps, not {len(mine['steps'])}")
        for at, (step, seen) in enumerate(zip(mine["steps"], other["steps"], strict=False)):
            found += [
                f"{name}, step {at}, {field}: {seen[field]!r}, not {step[field]!r}"
                for field in fields
                if seen[field] != step[field]
            ]
        if not math.isclose(sum(step["reward"] or 0.0 for step in other["steps"]), mine["value"], abs_tol=1e-9):
            found.append(f"{name}: rewards add up to something else than {mine['value']}")
    return found
