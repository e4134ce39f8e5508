"""`make demo`: a small model learns over the wire to guess a number near the middle of a range.

Serves guess_number-tiny (seven numbers, three guesses), records how a beginner plays it, makes a model of half a
million random weights, teaches it to play like the beginner, and lets it improve by GRPO. The beginner knows the rules
and never gives up; it guesses at random among the numbers that are still possible. Only halving the range always wins.

The ranges of the test split appear in no other split. On them, the trained model is compared with three baselines:
random legal guesses, the warm-up policy as it is, and the warm-up policy kept from giving up.

    python scripts/demo.py [--folder runs/demo] [--seed 0] [--section.key=value …]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rich.console import Console
from rich.markup import escape

from ludus.client import (
    Answer,
    Call,
    Conversation,
    EpisodePolicy,
    TrajectoryWriter,
    connect,
    read_trajectories,
    rollout,
    rollout_all,
)
from ludus.protocol import text_of
from ludus.protocol.content import Message
from ludus.trainer.quickstart import serving

ROOT = Path(__file__).resolve().parents[1]
LUDUS = Path(sys.executable).with_name("ludus")
ENVIRONMENT = "guess_number-tiny"
ROUNDS = 4
"""How often the beginner plays each training task, each time with another hidden number."""
CONFIG = ROOT / "trainer" / "configs" / "laptop_cpu.toml"
T = TypeVar("T")
RULES = re.compile(r"from (\d+) to (\d+)")


class Guesser:
    """Guesses at random: any number of the range, or, as the demo's beginner, one that is still possible."""

    def __init__(self, name: str, *, listens: bool) -> None:
        self.name, self.listens = name, listens

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """Return the policy of one game."""
        rng = random.Random(f"{self.name}/{conversation.seed}/{conversation.sample}")
        low, high = range_of(conversation.items)
        last = low

        async def guess(conversation: Conversation) -> Call | Answer:
            nonlocal low, high, last
            for result in conversation.results if self.listens else ():
                if "higher" in text_of(result.content):
                    low = last + 1
                else:
                    high = last - 1
            last = rng.randint(low, high)
            return Call("guess", {"number": last})

        return guess


def range_of(items: Iterable[object]) -> tuple[int, int]:
    """Return the least and the greatest number of a game, as its rules state them."""
    rules = "".join(text_of(item.content) for item in items if isinstance(item, Message))
    low, high = map(int, RULES.findall(rules)[0])
    return low, high


async def record(url: str, path: Path, seed: int) -> int:
    """Let the beginner play the training tasks, write the trajectories in order, and return their number."""
    async with connect(url) as client:
        environment, beginner = client.environment(ENVIRONMENT), Guesser("beginner", listens=True)
        played = await rollout_all(environment, beginner, samples=ROUNDS, seed=seed, concurrency=64)
    with TrajectoryWriter(path, overwrite=True) as writer:
        for trajectory in played:  # the tokenizer and the warm-up depend on the order
            writer.write(trajectory)
    return len(played)


async def play_at_random(url: str, seed: int) -> float:
    """Return the share of test games that random legal guesses win."""
    rewards = []
    async with connect(url) as client:
        guesser = Guesser("random legal guesses", listens=False)
        environment = client.environment(ENVIRONMENT)
        async for trajectory in rollout(environment, guesser, split="test", samples=20, seed=seed, concurrency=64):
            assert trajectory.value is not None
            rewards.append(trajectory.value)
    return sum(rewards) / len(rewards)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; SIGINT and SIGTERM cancel it and end the process once its event loop is closed.

    An exception that a signal raises while a loop is set up or closed would leave it open, with a traceback at exit.
    """
    received: list[int] = []
    cancel: list[Callable[[], object]] = []

    async def cancellable() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        cancel.append(lambda: loop.call_soon_threadsafe(task.cancel))
        if received:
            task.cancel()
        try:
            return await work
        finally:
            cancel.clear()

    def note(number: int, _: object) -> None:
        received.append(number)
        for act in cancel:
            act()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return asyncio.run(cancellable())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            sys.exit(128 + received[0])


def make_model(folder: Path, demonstrations: Path, seed: int) -> None:
    """A model of random weights, whose tokenizer has learned the text of such games."""
    from ludus.trainer import quickstart

    games = [trajectory for trajectory in read_trajectories(demonstrations) if len(trajectory.turns) > 2]
    quickstart.make_model(folder, games, seed)


def train(folder: Path, url: str, model: Path, demonstrations: Path, seed: int, overrides: Sequence[str]) -> None:
    """`ludus train`, in a process of its own."""
    command = [
        str(LUDUS), "train", str(CONFIG), f"--output={folder}", f"--seed={seed}", f"--environments.0.url={url}",
        f"--model.path={model}", f"--sft.demonstrations={json.dumps([str(demonstrations)])}", *overrides,
    ]  # fmt: skip
    if code := subprocess.run(command, stdin=subprocess.DEVNULL, env={**os.environ}).returncode:
        sys.exit(f"the run failed, as told above (exit code {code})")


class Outcome(NamedTuple):
    """Shares of test games won: the trained policy, and the baselines it must beat."""

    random_legal: float
    """Random legal guesses."""
    warm_up: float
    """The policy that imitates the beginner, before GRPO."""
    persistent: float
    """The same policy, kept from giving up."""
    trained: float
    low: float
    """The lower end of the 95 % interval of `trained`, over the test tasks."""
    high: float
    distance_before: float
    """How far the warm-up policy's first guess is from the middle of the range, on average over recorded test games.
    A guess at random among seven numbers is 1.7 away."""
    distance_after: float
    """The same of the trained policy."""

    @property
    def gain(self) -> float:
        """What GRPO added to the best of the baselines."""
        return self.trained - max(self.random_legal, self.warm_up, self.persistent)

    @property
    def lesson(self) -> str:
        """What the policy learned, in one sentence."""
        if self.gain > 0 and self.distance_after < 0.75 * self.distance_before:
            return "Learned: to begin near the middle of the range."
        return "It did not learn to begin near the middle of the range."


def held_out(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """Return the step and the metrics of each evaluation of a run."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line) for line in lines if f"evaluation/{ENVIRONMENT}/mean" in line]


def outcome(folder: Path, random_legal: float) -> Outcome:
    """Read what a run achieved from its folder."""
    name = f"evaluation/{ENVIRONMENT}/mean"
    (first, before), (last, after) = (held_out(folder)[index] for index in (0, -1))
    return Outcome(
        random_legal,
        before[name],
        before[f"evaluation/{ENVIRONMENT}/persistent/mean"],
        after[name],
        after[f"{name}_low"],
        after[f"{name}_high"],
        distance_from_middle(folder, first),
        distance_from_middle(folder, last),
    )


def distance_from_middle(folder: Path, step: int) -> float:
    """Return how far a step's recorded test games begin from the middle number, on average; no guess counts as 4."""
    distances = []
    for line in (folder / "rollouts.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["step"] == step and record.get("held_out"):
            items = record["trajectory"]["items"]
            low, high = map(int, RULES.findall(json.dumps(items))[0])
            calls = [item["arguments"] for item in items if item["type"] == "function_call"]
            guessed = re.findall(r"\d+", calls[0]) if calls else []
            furthest = (high - low) // 2 + 1
            distances.append(min(furthest, abs(int(guessed[0]) - (low + high) // 2)) if guessed else furthest)
    return sum(distances) / len(distances)


def show(folder: Path, found: Outcome, console: Console, seconds: float) -> None:
    """Print the baselines, the curve, what was learned, and a game."""
    name = f"evaluation/{ENVIRONMENT}/mean"
    console.print("\n[bold]Games won on ranges that no training saw[/bold]")
    baselines = (
        ("random legal guesses", found.random_legal),
        ("warm-up policy", found.warm_up),
        ("warm-up policy, kept from giving up", found.persistent),
    )
    rows = [*baselines, *((f"GRPO, step {step}", figures[name]) for step, figures in held_out(folder) if step)]
    for label, share in rows:
        console.print(f"  {label:<36}{share:>6.1%}  [green]{'█' * round(40 * share)}[/green]")
    console.print(
        f"\n{found.gain:+.0%} over the best baseline (95 % interval of the last row: {found.low:.0%} to "
        f"{found.high:.0%}), {seconds:.0f} s in all.\n"
        f"{found.lesson} Its first guess is {found.distance_after:.1f} away from the middle on average; the warm-up "
        f"policy's was {found.distance_before:.1f} away."
    )
    lines = (folder / "rollouts.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])["trajectory"]
    console.print("\n[bold]A game of the trained model[/bold]")
    low, high = map(int, RULES.findall(json.dumps(last["items"]))[0])
    console.print(f"  from {low} to {high}")
    for item in last["items"][1:]:
        if item["type"] == "function_call":
            console.print(f"  {escape(item['name'])}({escape(item['arguments'])})")
        elif item["type"] == "function_call_output":
            console.print(f"    {escape(str(item['output']))}", style="dim")
    console.print(f"\nThe whole run, with curves and games: {folder / 'report.html'}")


def learn(folder: Path, seed: int, overrides: Sequence[str], say: Callable[[str], None]) -> Outcome:
    """Serve, record, make the model, train; return what was achieved. The run is in `folder / "run"`."""
    model, demonstrations = folder / "start", folder / "beginner.jsonl"
    with serving("guess_number") as url:
        say(f"[bold]1[/bold] ludus serve guess_number: {url}")
        count = run(record(url, demonstrations, seed))
        say(f"[bold]2[/bold] a beginner played {count} games")
        random_legal = run(play_at_random(url, seed))
        make_model(model, demonstrations, seed)
        say("[bold]3[/bold] a model of random weights; ludus train:")
        train(folder / "run", url, model, demonstrations, seed, overrides)
    return outcome(folder / "run", random_legal)


def main() -> None:
    """Run the demo and show its outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "demo")
    parser.add_argument("--seed", type=int, default=0)
    options, overrides = parser.parse_known_args()
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    began = time.perf_counter()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    found = learn(options.folder, options.seed, overrides, console.print)
    show(options.folder / "run", found, console, time.perf_counter() - began)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
