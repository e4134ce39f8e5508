"""`make demo`: a small model learns to play over the wire.

Serves guess_number (1 to 7, four guesses), records how a beginner plays it, makes a model of half a million random
weights, teaches it the beginner's manners, and lets it learn the game by GRPO. Shows how often it wins held-out games
before and after, the curve, and a game.

    python scripts/demo.py [--folder runs/demo] [--seed 0] [--section.key=value …]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from ludus.client import Answer, Call, connect
from ludus.client.policies.base import Conversation, EpisodePolicy
from ludus.client.rollout import rollout
from ludus.client.trajectory import TrajectoryWriter, read_trajectories
from ludus.protocol import text_of
from ludus.protocol.content import Message

ROOT = Path(__file__).resolve().parents[1]
LUDUS = Path(sys.executable).with_name("ludus")
ENVIRONMENT = "guess_number-tiny"
GAMES = 400
"""That the beginner plays."""
CONFIG = ROOT / "trainer" / "configs" / "laptop_cpu.toml"


class Beginner:
    """Knows the rules and minds what it is told, has no plan, and mostly gives up before the first guess."""

    name = "beginner"

    def __init__(self, seed: int, *, stays: float = 0.28) -> None:
        self.seed, self.stays = seed, stays

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """The guesses of one game."""
        rng = random.Random(f"{self.seed}/{conversation.seed}/{conversation.sample}")
        rules = "".join(text_of(item.content) for item in conversation.items if isinstance(item, Message))
        low, high = map(int, re.findall(r"from (\d+) to (\d+)", rules)[0])
        least, most, last = low, high, 0
        gives_up = rng.random() >= self.stays

        async def guess(conversation: Conversation) -> Call | Answer:
            nonlocal least, most, last
            for result in conversation.results:
                if "higher" in text_of(result.content):
                    least = max(least, last + 1)
                elif "lower" in text_of(result.content):
                    most = min(most, last - 1)
            if gives_up:
                return Answer("I give up.")
            last = rng.randint(least, most)
            return Call("guess", {"number": last})

        return guess


async def record(url: str, path: Path, games: int, seed: int) -> None:
    """Let the beginner play, and write the trajectories."""
    async with connect(url) as client:
        environment = client.environment(ENVIRONMENT)
        with TrajectoryWriter(path, overwrite=True) as writer:
            async for trajectory in rollout(environment, Beginner(seed), n=games, seed=seed, concurrency=64):
                writer.write(trajectory)


def make_model(folder: Path, demonstrations: Path, seed: int) -> None:
    """A model of random weights, whose tokenizer has learned the text of such games."""
    from transformers import AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    from ludus.trainer.learning.sft import render
    from ludus.trainer.tiny import make_tiny_model
    from ludus.trainer.tokens.renderer import Renderer

    def tokenizer() -> Any:
        return AutoTokenizer.from_pretrained(folder)

    disable_progress_bar()
    make_tiny_model(folder, seed=seed)
    plain = tokenizer()
    renderer = Renderer(plain)
    played = (trajectory for trajectory in read_trajectories(demonstrations) if len(trajectory.turns) > 2)
    games = [sample for trajectory in itertools.islice(played, 200) if (sample := render(trajectory, renderer))]
    marks = re.compile("|".join(map(re.escape, plain.all_special_tokens + ["<tool_call>", "</tool_call>"])))
    make_tiny_model(folder, texts=[part for game in games for part in marks.split(plain.decode(game.ids))], seed=seed)


@contextlib.contextmanager
def serving(*names: str) -> Iterator[str]:
    """A real `ludus serve` on a free port; its address."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        command = [str(LUDUS), "serve", *names, "--port", "0"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield _address(process, Path(log.name))
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            process.kill()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        if found := re.search(r"http://[\d.]+:\d+", log.read_text(encoding="utf-8")):
            return found.group()
        time.sleep(0.05)
    sys.exit(f"the server did not start:\n{log.read_text(encoding='utf-8')[-3000:]}")


def train(folder: Path, url: str, model: Path, demonstrations: Path, seed: int, overrides: Sequence[str]) -> None:
    """`ludus train`, in a process of its own."""
    command = [
        str(LUDUS), "train", str(CONFIG), f"--output={folder}", f"--seed={seed}", f"--environments.0.url={url}",
        f"--model.path={model}", f'--sft.demonstrations=["{demonstrations}"]', *overrides,
    ]  # fmt: skip
    if code := subprocess.run(command, stdin=subprocess.DEVNULL, env={**os.environ}).returncode:
        sys.exit(f"the run failed, as told above (exit code {code})")


def held_out(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """Step and metrics of each evaluation."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line) for line in lines if f"evaluation/{ENVIRONMENT}/mean" in line]


def show(folder: Path, console: Console, seconds: float) -> None:
    """What came of it."""
    name = f"evaluation/{ENVIRONMENT}/mean"
    evaluations = held_out(folder)
    console.print(f"\n[bold]Games won on the test split[/bold] ({seconds:.0f} s in all)")
    for step, figures in evaluations:
        low, high = figures[f"{name}_low"], figures[f"{name}_high"]
        bar = "█" * round(40 * figures[name])
        console.print(f"  step {step:>4}  {figures[name]:>6.1%}  [green]{bar:<40}[/green]  {low:.0%} to {high:.0%}")
    lines = (folder / "rollouts.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])["trajectory"]
    console.print("\n[bold]A game of the trained model[/bold]")
    for item in last["items"][1:]:
        if item["type"] == "function_call":
            console.print(f"  {escape(item['name'])}({escape(item['arguments'])})")
        elif item["type"] == "function_call_output":
            console.print(f"    {escape(str(item['output']))}", style="dim")
    console.print(f"\nThe whole run, with curves and games: {folder / 'report.html'}")


def main() -> None:
    """Serve, record, make, train, show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "demo")
    parser.add_argument("--seed", type=int, default=0)
    options, overrides = parser.parse_known_args()
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    began = time.perf_counter()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    model, demonstrations = options.folder / "start", options.folder / "beginner.jsonl"
    with serving("guess_number") as url:
        console.print(f"[bold]1[/bold] ludus serve guess_number: {url}")
        asyncio.run(record(url, demonstrations, GAMES, options.seed))
        console.print(f"[bold]2[/bold] a beginner played {GAMES} games")
        make_model(model, demonstrations, options.seed)
        console.print("[bold]3[/bold] a model of random weights; ludus train:")
        train(options.folder / "run", url, model, demonstrations, options.seed, overrides)
    show(options.folder / "run", console, time.perf_counter() - began)


if __name__ == "__main__":
    main()
